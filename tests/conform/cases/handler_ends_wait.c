/* A pvm_recvinfo that waits for an entry ends when a message handler calls pvm_recvinfo: with the answer to that
 * call. What the libraries print about it is not compared. */
#include "case.h"
#include <fcntl.h>

#define EXIT 55

static int look_for_nothing(int mid)
{
    (void)mid;
    SHOW(pvm_recvinfo("nothing", 0, PvmMboxDefault));
    return 0;
}

static int look_for_something(int mid)
{
    (void)mid;
    SHOW(pvm_recvinfo("something", 0, PvmMboxDefault));
    return 0;
}

/* Waits for an entry until a child ends, with this handler. */
static void wait_with(int (*handler)(int))
{
    char *arguments[] = {"3", NULL};
    int child, id, number = 0, mid;
    SHOW(pvm_spawn("/bin/sleep", arguments, 0, "", 1, &child));
    id = pvm_addmhf(-1, EXIT, -1, handler);
    SHOW(pvm_notify(PvmTaskExit, EXIT, 1, &child));
    mid = pvm_recvinfo("awaited", 0, PvmMboxWaitForInfo);
    SHOW(mid > 0 ? 1 : mid);
    if (mid > 0) {
        SHOW(pvm_upkint(&number, 1, 1));
        SHOW(number);
    }
    pvm_delmhf(id);
}

int main(void)
{
    int number = 17;
    case_begin();
    dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
    pvm_mytid();
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&number, 1, 1);
    SHOW(pvm_putinfo("something", pvm_getsbuf(), PvmMboxDefault));
    wait_with(look_for_nothing);
    wait_with(look_for_something);
    /* The entry is there still, and the one that was awaited can come. */
    SHOW(pvm_recvinfo("something", 0, PvmMboxDefault) > 0);
    SHOW(pvm_putinfo("awaited", pvm_getsbuf(), PvmMboxDefault));
    SHOW(pvm_recvinfo("awaited", 0, PvmMboxWaitForInfo) > 0);
    pvm_exit();
    return 0;
}
