/* D11: a child of fork() is a task of its own. */
//@ ours-only D11: skip
#include "case.h"
#include <sys/wait.h>

int main(void)
{
    int me, id, status = 0, value = 0;
    case_begin();
    me = pvm_mytid();
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&me, 1, 1);
    pvm_send(me, 1); /* waits in the parent */
    id = fork();
    if (id == 0) {
        SHOW(pvm_mytid() != me && pvm_mytid() > 0);
        SHOW(pvm_parent());
        SHOW(pvm_nrecv(-1, -1));
        value = 17;
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&value, 1, 1);
        SHOW(pvm_send(me, 2));
        pvm_exit();
        fflush(NULL);
        _exit(0);
    }
    waitpid(id, &status, 0);
    SHOW(status);
    SHOW(pvm_mytid() == me);
    SHOW(case_receive(-1, 2, 5) > 0);
    pvm_upkint(&value, 1, 1);
    SHOW(value);
    SHOW(case_own(1) > 0);
    SHOW(pvm_config(NULL, NULL, NULL));
    pvm_exit();
    return 0;
}
