/* The error messages when there is no daemon. */
//@ nodaemon
//@ differs 2.0: libpvm [pid] TMP/pvmd.UID: No such file or directory\nlibpvm [pid] TMP/pvmd.UID: No such file or directory\nlibpvm [pid] TMP/pvmd.UID: No such file or directory => libpvm [pid] TMP/pvmd.UID: No such file or directory
#include "case.h"

int main(void)
{
    case_begin();
    SHOW(pvm_mytid());
    return 0;
}
