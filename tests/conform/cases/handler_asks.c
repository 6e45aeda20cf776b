/* In a message handler, pvm_notify works. pvm_sendsig and pvm_kill return an error, but are carried out. */
#include "case.h"

#define CALL 66
#define EXIT 55

static int child;

static int notifies(int mid)
{
    (void)mid;
    SHOW(pvm_notify(PvmTaskExit, EXIT, 1, &child));
    return 0;
}

static int kills(int mid)
{
    (void)mid;
    SHOW(pvm_kill(child));
    return 0;
}

/* Lets the handler run for messages with a tag. */
static void call(int (*handler)(int), int tag)
{
    pvm_addmhf(-1, tag, -1, handler);
    pvm_initsend(PvmDataDefault);
    pvm_send(pvm_mytid(), tag);
    case_receive(-1, 99, 0.5);
}

int main(void)
{
    char *arguments[] = {"100", NULL};
    struct timeval patience = {5, 0};
    int tid = 0;
    case_begin();
    pvm_mytid();
    SHOW(pvm_spawn("/bin/sleep", arguments, 0, "", 1, &child));
    call(notifies, CALL);
    call(kills, CALL + 1);
    SHOW(pvm_trecv(-1, EXIT, &patience) > 0);
    pvm_upkint(&tid, 1, 1);
    SHOW(tid == child);
    pvm_exit();
    return 0;
}
