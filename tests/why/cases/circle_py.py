#@ tasks: 2
#@ deadlock: 0 1
#@ says: pvm_recv({1}, tag 8): {1} waits itself
#@ says: a circle of waits: {0} -> {1} -> {0}.
# Each receives before it sends. The library is called without the Python package, which need not be built for this.
import ctypes

library = ctypes.CDLL("libpvm3.so.3")
own = library.pvm_mytid()
siblings = ctypes.POINTER(ctypes.c_int)()
count = library.pvm_siblings(ctypes.byref(siblings))
other = next(tid for tid in siblings[:count] if tid != own)
library.pvm_recv(other, 8)
