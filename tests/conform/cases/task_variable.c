/* PVMTASK adds flags to every spawn. */
//@ env PVMTASK=1
#include "case.h"

int main(int argc, char **argv)
{
    int tid = 0;
    case_begin();
    if (argc > 1)
        return 0;
    pvm_mytid();
    SHOW(pvm_spawn("/bin/true", NULL, PvmTaskDefault, "no-such-host", 1, &tid));
    SHOW(tid);
    SHOW(pvm_spawn("/bin/true", NULL, PvmTaskDefault, ".", 1, &tid));
    pvm_exit();
    return 0;
}
