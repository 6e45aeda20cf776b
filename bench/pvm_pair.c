/* Ping-pong of two tasks on two hosts over a fabric, with a fixed number of round trips in a repetition.
 *
 *   pvm_pair EXCHANGES REPETITIONS SIZE...
 *
 * The messages are sent by pvm_psend, and packed with PvmDataRaw. Nothing is measured before the messages of both tasks
 * take the fabric. The master spawns the other task, which is the same program with the argument `worker`.
 */
#include "bench.h"
#include "pvm_forms.h"

/* An option of hpvm for pvm_getopt: to how many tasks messages take the fabric. */
#define OPTION_FABRIC_TASKS 1006
/* Rounds of messages within which the fabric must be taken. */
#define FABRIC_ROUNDS_MAX 1000

/* What both tasks do next; no exchanges: they end. */
struct order {
    int form, size, exchanges;
};

static char *data;

static void ping(int peer, struct order order, int is_first)
{
    for (int i = 0; i < order.exchanges; i++) {
        if (is_first)
            send_form(order.form, peer, TAG_DATA, data, order.size);
        receive_form(order.form, peer, TAG_DATA, data, order.size);
        if (!is_first)
            send_form(order.form, peer, TAG_DATA, data, order.size);
    }
}

static void worker(void)
{
    int master = must(pvm_parent(), "pvm_parent");
    pin_to_core(1);
    for (;;) {
        struct order order;
        receive_form(RAW_BYTE, master, TAG_ORDER, (char *)&order, sizeof order);
        if (order.exchanges == 0)
            return;
        int fabric_tasks = pvm_getopt(OPTION_FABRIC_TASKS);
        send_form(RAW_BYTE, master, TAG_READY, (char *)&fabric_tasks, sizeof fabric_tasks);
        ping(master, order, 0);
    }
}

/* Returns the time of the exchanges in us. Sets `fabric_tasks` to the number that the worker has told. */
static double timed(int peer, struct order order, int *fabric_tasks)
{
    send_form(RAW_BYTE, peer, TAG_ORDER, (char *)&order, sizeof order);
    receive_form(RAW_BYTE, peer, TAG_READY, (char *)fabric_tasks, sizeof *fabric_tasks);
    double start = now_us();
    ping(peer, order, 1);
    return now_us() - start;
}

static void take_fabric(int peer)
{
    for (int round = 0; round < FABRIC_ROUNDS_MAX; round++) {
        int theirs;
        timed(peer, (struct order){PSEND, 8, 10}, &theirs);
        if (theirs > 0 && pvm_getopt(OPTION_FABRIC_TASKS) > 0)
            return;
        usleep(1000);
    }
    fail("the messages do not take the fabric");
}

static int spawned_on_other_host(char *program)
{
    static char *arguments[] = {"worker", NULL};
    struct pvmhostinfo *hosts;
    int count, tid = 0;
    must(pvm_config(&count, NULL, &hosts), "pvm_config");
    for (int i = 0; i < count; i++)
        if (hosts[i].hi_tid != pvm_tidtohost(pvm_mytid()) && tid == 0
            && pvm_spawn(program, arguments, PvmTaskHost, hosts[i].hi_name, 1, &tid) != 1)
            fail("cannot spawn on the other host");
    if (tid == 0)
        fail("there is one host only");
    return tid;
}

static void master(char *program, int exchanges, int repetitions, char **sizes)
{
    static const int forms[] = {PSEND, RAW_BYTE};
    int peer = spawned_on_other_host(program), theirs;
    pin_to_core(0);
    take_fabric(peer);
    for (; *sizes; sizes++) {
        for (int f = 0; f < COUNT_OF(forms); f++) {
            struct order order = {forms[f], atoi(*sizes), exchanges};
            fill(data, order.size, f);
            timed(peer, order, &theirs);
            check(data, order.size, f);
            for (int i = 0; i < repetitions; i++)
                report(form_names[forms[f]], order.size, timed(peer, order, &theirs) / exchanges / 2, "us");
        }
    }
    if (theirs == 0 || pvm_getopt(OPTION_FABRIC_TASKS) == 0)
        fail("the messages have left the fabric");
    struct order end = {0, 0, 0};
    send_form(RAW_BYTE, peer, TAG_ORDER, (char *)&end, sizeof end);
}

int main(int argc, char **argv)
{
    char program[4096];
    data = memory(MESSAGE_BYTES_MAX);
    if (argc == 2 && strcmp(argv[1], "worker") == 0)
        worker();
    else if (argc > 3 && realpath(argv[0], program))
        master(program, atoi(argv[1]), atoi(argv[2]), argv + 3);
    else
        fail("usage: pvm_pair EXCHANGES REPETITIONS SIZE...");
    pvm_exit();
    return 0;
}
