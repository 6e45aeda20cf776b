/* Tasks that have direct links send multicasts on them where the daemons know no better way. pvm_tickle counts the multicasts
 * to three or more other hosts that the daemons have sent. */
//@ ours-only 2.9: skip
//@ no-fabric it counts what direct links do not carry
//@ fresh
//@ daemon-env HPVM_ORDER=pairs
//@ timeout 90
#include "hosts.h"
#include "numbered.h"

#define OTHERS 3
#define ROUNDS 40

/* Answers each message with its number, or -2 if it is not the next one. A message with tag 1 sets the next number. */
static void child(void)
{
    int parent = pvm_parent(), tag, number, next = 0;
    while (pvm_recv(parent, -1) > 0) {
        pvm_bufinfo(pvm_getrbuf(), NULL, &tag, NULL);
        if (tag == 1)
            pvm_upkint(&next, 1, 1);
        number = tag == 1 ? next : is_numbered(next) ? next++ : -2;
        pvm_initsend(PvmDataRaw);
        pvm_pkint(&number, 1, 1);
        pvm_send(parent, tag);
    }
}

/* Tells a task the number of the next message. */
static void set_next(int tid, int number)
{
    pvm_initsend(PvmDataRaw);
    pvm_pkint(&number, 1, 1);
    pvm_send(tid, 1);
}

/* Multicasts messages of this length, every fourth of them by single sends. Returns how many were answered rightly. */
static int rounds(int *tids, int count, int first, int bytes)
{
    int i, k, well = 0;
    for (i = first; i < first + ROUNDS; i++) {
        if (i % 4 == 3) {
            for (k = 0; k < count; k++)
                send_numbered(tids[k], 2, i, bytes);
        } else {
            pack_numbered(i, bytes);
            pvm_mcast(tids, count, 2);
        }
        for (k = 0; k < count; k++)
            well += received_number(tids[k], 2) == i;
    }
    return well;
}

int main(int argc, char **argv)
{
    int tids[5], i, k;
    case_begin();
    if (argc > 1) {
        child();
        pvm_exit();
        return 0;
    }
    pvm_mytid();
    SHOW(spawn_on_all("child", tids));
    tids[4] = spawn_on("delta", "child");
    for (k = 1; k < 4; k++) {
        for (i = 0; i < 2000 && !is_linked(tids[k]); i++) {
            set_next(tids[k], 0);
            received_number(tids[k], 1);
            usleep(200);
        }
        SHOW(is_linked(tids[k]));
    }

    tickle(9, 1);
    puts("-- of a length that the daemon does not measure: on links");
    SHOW(rounds(tids + 1, OTHERS, 0, 32 << 10) == ROUNDS * OTHERS);
    tickle(9, 1);
    puts("-- a way that the program names is that of the daemons");
    pvm_setopt(PvmMcastRoute, PvmMcastIterative);
    SHOW(rounds(tids + 1, OTHERS, ROUNDS, 32 << 10) == ROUNDS * OTHERS);
    pvm_setopt(PvmMcastRoute, PvmMcastAutomatic);
    tickle(9, 1);
    puts("-- two tasks of one host get one body, by the daemons");
    set_next(tids[4], 2 * ROUNDS);
    received_number(tids[4], 1);
    SHOW(rounds(tids + 1, OTHERS + 1, 2 * ROUNDS, 32 << 10) == ROUNDS * (OTHERS + 1));
    tickle(9, 0);
    puts("-- longer: on links if the daemon has measured that this is best");
    SHOW(rounds(tids + 1, OTHERS, 3 * ROUNDS, 300 << 10) == ROUNDS * OTHERS);
    puts("-- to two hosts");
    SHOW(rounds(tids + 1, 2, 4 * ROUNDS, 300 << 10) == ROUNDS * 2);
    fflush(stdout);
    i = system("grep -h -o 'multicasts: .*' $PVM_TMP/pvml.*");
    for (k = 0; k < 5; k++)
        pvm_kill(tids[k]);
    pvm_exit();
    return i;
}
