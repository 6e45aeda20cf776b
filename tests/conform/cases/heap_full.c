/* When the memory for messages is full, a call that needs more returns PvmNoMem. Nothing else fails: earlier
 * messages arrive whole, other tasks continue, and memory that receivers release can be used again. On PVM 3.4
 * the daemon dies. (No direct route: there, a receiver that reads takes the longest message.) */
//@ ours-only D41: skip
//@ env HPVM_HEAP_MAX=16777216
//@ env HPVM_DIRECT_AFTER=off
#include "case.h"
#include <signal.h>

enum { MEGABYTE = 1 << 20, GO = 1, BODY = 2, DONE = 3, PING = 4, READY = 5, HUGE_LENGTH = 64 << 20 };

static char body[MEGABYTE];

/* Receives only on request, and reports how many messages were correct. */
static int receiver(void)
{
    int parent = pvm_parent(), right = 0, message, first;
    case_signal(parent, READY);
    pvm_recv(parent, GO);
    while ((message = case_receive(parent, BODY, 0.5)) > 0) {
        pvm_upkint(&first, 1, 1);
        if (pvm_upkbyte(body, MEGABYTE, 1) == PvmOk && body[0] == (char)first && body[MEGABYTE - 1] == (char)first
            && first == right)
            right++;
    }
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&right, 1, 1);
    pvm_send(parent, DONE);
    pvm_exit();
    return 0;
}

/* Answers each message until it receives the order to end. */
static int echo(void)
{
    int parent = pvm_parent(), tag, sender;
    for (;;) {
        pvm_bufinfo(pvm_recv(-1, -1), NULL, &tag, &sender);
        if (tag == DONE)
            break;
        case_signal(sender, tag);
    }
    case_signal(parent, DONE);
    pvm_exit();
    return 0;
}

/* Packs a megabyte with a number. */
static int pack(int number)
{
    int result;
    memset(body, number, sizeof body);
    pvm_initsend(PvmDataRaw);
    result = pvm_pkint(&number, 1, 1);
    return result < 0 ? result : pvm_pkbyte(body, MEGABYTE, 1);
}

/* Sends until a send fails. Returns how many messages were sent. */
static int fill(int to, int *code)
{
    int sent = 0;
    while ((*code = pack(sent)) == PvmOk && (*code = pvm_send(to, BODY)) == PvmOk && sent < 1000)
        sent++;
    return sent;
}

int main(int argc, char **argv)
{
    int tids[2], code, sent, received, round, length = 0;
    static char huge[HUGE_LENGTH];
    case_begin();
    if (argc > 1)
        return strcmp(argv[1], "receiver") == 0 ? receiver() : echo();
    pvm_setopt(PvmAutoErr, 0);
    SHOW(case_spawn("receiver", 1, &tids[0]));
    SHOW(case_spawn("echo", 1, &tids[1]));
    /* A buffer that grows without limit. */
    SHOW_SIGN(pvm_initsend(PvmDataRaw));
    while ((code = pvm_pkbyte(body, MEGABYTE, 1)) == PvmOk && length < 1000)
        length++;
    printf("grows: %s, then %d, %d\n", length >= 8 && length <= 16 ? "as far as it may" : "not", code, pvm_errno);
    /* The buffer is unchanged, and can be freed. */
    SHOW(pvm_bufinfo(pvm_getsbuf(), &length, NULL, NULL));
    printf("whole megabytes: %d\n", length % MEGABYTE == 0);
    SHOW(pvm_freebuf(pvm_getsbuf()));
    for (round = 0; round < 2; round++) {
        /* Fills the memory with messages that nobody receives. A task that waits for another tag would take them into its own
         * memory. */
        SHOW_SIGN(case_receive(tids[0], READY, 10.0));
        SHOW(pvm_sendsig(tids[0], SIGSTOP));
        sent = fill(tids[0], &code);
        /* The daemon of another host may have accepted some. */
        printf("sent: %s, then %d\n", sent >= 8 && sent <= 24 ? "as many as may be" : "not", code);
        SHOW(pvm_psend(tids[0], BODY, huge, HUGE_LENGTH, PVM_BYTE));
        SHOW(pvm_initsend(PvmDataDefault) > 0);
        /* Other tasks, and short messages, are not affected. */
        SHOW(case_signal(tids[1], PING));
        SHOW_SIGN(case_receive(tids[1], PING, 5.0));
        SHOW(pvm_sendsig(tids[0], SIGCONT));
        SHOW(case_signal(tids[0], GO));
        SHOW_SIGN(case_receive(tids[0], DONE, 10.0));
        pvm_upkint(&received, 1, 1);
        printf("all of them arrived: %d\n", received == sent);
        case_gone(tids[0]);
        /* In the next round there is room again. */
        SHOW(case_spawn("receiver", 1, &tids[0]));
    }
    SHOW(pvm_kill(tids[0]));
    SHOW(case_signal(tids[1], DONE));
    SHOW_SIGN(case_receive(tids[1], DONE, 5.0));
    SHOW(pvm_exit());
    return 0;
}
