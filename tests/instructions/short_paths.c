/* Does short calls in batches, between marks for callgrind, which counts their instructions.
 *
 *   short_paths CALLS    under `valgrind --tool=callgrind`; the peer is spawned and runs without valgrind
 *   short_paths peer     the peer
 *
 * Each case is repeated in several batches, and the smallest count of a case is the one of the short path: in other
 * batches a queue may have grown, or a message may have come late.
 */
#include <pvm3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <valgrind/callgrind.h>

#define TAG_SEND 1   /* the peer takes a batch */
#define TAG_FETCH 2  /* the peer sends a batch */
#define TAG_DATA 3
#define TAG_DONE 4
#define TAG_END 5
#define BATCHES 12
/* How long the peer may take to send a batch, in us. */
#define BATCH_US 4000

/* A message, or the share of a member in a collective call; the root is the counted task. */
enum form { PSEND, PACKED, REDUCE, GATHER };

struct order {
    int form, bytes, calls;
};

/* The group of the counted task (instance 0) and the peer. */
#define GROUP "short_paths"

static char data[1024];
static double numbers[2];
static int peer;

static void must(int result, const char *what)
{
    if (result < 0) {
        fprintf(stderr, "short_paths: %s: %d\n", what, result);
        exit(1);
    }
}

static void take_part(enum form form)
{
    if (form == REDUCE)
        pvm_reduce(PvmSum, numbers, 1, PVM_DOUBLE, TAG_DATA, GROUP, 0);
    else
        pvm_gather(numbers, data, 1, PVM_DOUBLE, TAG_DATA, GROUP, 0);
}

static void send_data(struct order order, int to)
{
    if (order.form >= REDUCE) {
        take_part(order.form);
    } else if (order.form == PSEND) {
        pvm_psend(to, TAG_DATA, data, order.bytes, PVM_BYTE);
    } else {
        pvm_initsend(PvmDataDefault);
        pvm_pkbyte(data, order.bytes, 1);
        pvm_send(to, TAG_DATA);
    }
}

static void receive_data(struct order order, int from)
{
    if (order.form >= REDUCE) {
        take_part(order.form);
    } else if (order.form == PSEND) {
        pvm_precv(from, TAG_DATA, data, order.bytes, PVM_BYTE, NULL, NULL, NULL);
    } else {
        pvm_recv(from, TAG_DATA);
        pvm_upkbyte(data, order.bytes, 1);
    }
}

static void give_order(int tag, struct order order)
{
    must(pvm_psend(peer, tag, (char *)&order, sizeof order, PVM_BYTE), "psend");
}

static void await_done(void)
{
    int done;
    must(pvm_precv(peer, TAG_DONE, &done, 1, PVM_INT, NULL, NULL, NULL), "precv");
}

/* Never sleeps in a receive, so that the counted task need not wake it. */
static void serve(void)
{
    int parent = pvm_parent(), tag = 0;
    must(parent, "parent");
    must(pvm_joingroup(GROUP), "joingroup");
    must(pvm_psend(parent, TAG_DONE, (char *)&tag, 1, PVM_INT), "psend");
    while (tag != TAG_END) {
        struct order order;
        int id, done = 0;
        while ((id = pvm_probe(parent, -1)) == 0)
            ;
        must(pvm_bufinfo(id, NULL, &tag, NULL), "bufinfo");
        must(pvm_precv(parent, tag, &order, sizeof order, PVM_BYTE, NULL, NULL, NULL), "precv");
        for (int i = 0; i < order.calls && tag == TAG_SEND; i++) {
            while (pvm_probe(parent, TAG_DATA) == 0)
                ;
            receive_data(order, parent);
        }
        for (int i = 0; i < order.calls && tag == TAG_FETCH; i++)
            send_data(order, parent);
        must(pvm_psend(parent, TAG_DONE, &done, 1, PVM_INT), "psend");
    }
}

static void count_sends(const char *name, struct order order)
{
    for (int batch = 0; batch < BATCHES; batch++) {
        give_order(TAG_SEND, order);
        CALLGRIND_ZERO_STATS;
        for (int i = 0; i < order.calls; i++)
            send_data(order, peer);
        CALLGRIND_DUMP_STATS_AT(name);
        await_done();
    }
}

static void count_receives(const char *name, struct order order)
{
    for (int batch = 0; batch < BATCHES; batch++) {
        give_order(TAG_FETCH, order);
        usleep(BATCH_US);
        CALLGRIND_ZERO_STATS;
        for (int i = 0; i < order.calls; i++)
            receive_data(order, peer);
        CALLGRIND_DUMP_STATS_AT(name);
        await_done();
    }
}

static void count_probes(const char *name, int calls)
{
    for (int batch = 0; batch < BATCHES; batch++) {
        CALLGRIND_ZERO_STATS;
        for (int i = 0; i < calls; i++)
            pvm_nrecv(peer, TAG_DATA);
        CALLGRIND_DUMP_STATS_AT(name);
    }
}

int main(int argc, char **argv)
{
    must(pvm_mytid(), "mytid");
    if (argc == 2 && strcmp(argv[1], "peer") != 0)
        must(pvm_joingroup(GROUP), "joingroup");
    if (argc == 2 && strcmp(argv[1], "peer") == 0) {
        serve();
        pvm_exit();
        return 0;
    }
    int calls = argc == 2 ? atoi(argv[1]) : 0;
    char *arguments[] = {"peer", NULL}, program[4096];
    if (calls < 1 || !realpath(argv[0], program) || pvm_spawn(program, arguments, PvmTaskDefault, "", 1, &peer) != 1) {
        fprintf(stderr, "short_paths: usage: short_paths CALLS; or the peer cannot be spawned: %d\n", peer);
        return 1;
    }
    await_done();
    count_sends("psend 8", (struct order){PSEND, 8, calls});
    count_sends("psend 256", (struct order){PSEND, 256, calls});
    count_sends("psend 1024", (struct order){PSEND, 1024, calls});
    count_sends("packed send 8", (struct order){PACKED, 8, calls});
    count_sends("packed send 256", (struct order){PACKED, 256, calls});
    count_receives("precv 8", (struct order){PSEND, 8, calls});
    count_receives("precv 256", (struct order){PSEND, 256, calls});
    count_receives("precv 1024", (struct order){PSEND, 1024, calls});
    count_receives("packed receive 8", (struct order){PACKED, 8, calls});
    count_receives("packed receive 256", (struct order){PACKED, 256, calls});
    count_receives("reduce 8 of 2", (struct order){REDUCE, 8, calls});
    count_receives("gather 8 of 2", (struct order){GATHER, 8, calls});
    count_probes("empty nrecv", calls);
    give_order(TAG_END, (struct order){0, 0, 0});
    await_done();
    pvm_exit();
    return 0;
}
