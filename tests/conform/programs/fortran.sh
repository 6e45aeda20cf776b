# fmaster1 and fspmd: Debian's Fortran programs have their wrappers within.
#@ runs fslave1
#@ needs /usr/bin/fmaster1
#@ fresh
echo 3 | /usr/bin/fmaster1 | sed -E 's/26[0-9]{4}/N/g' | sort
timeout 5 /usr/bin/fspmd | sed -E 's/26[0-9]{4}/N/g'
