# inherita and inheritb: contexts pass on to children.
#@ runs inherit2
#@ needs /usr/bin/inherita
#@ fresh
/usr/bin/inherita inherit1
/usr/bin/inherita inherit3
/usr/bin/inheritb
/usr/bin/inherita
