# hitc: a Fortran job pool with blocking matrix inversions (statically linked Fortran wrappers).
#@ runs hitc_slave
#@ needs /usr/bin/hitc
#@ fresh
/usr/bin/hitc | sed -E 's/ +[0-9]{6,7}/ TID/' | sort
