/* A worker: sends and receives at random until it is told to stop, or killed. */
#include "torture.h"

#include <fcntl.h>
#include <malloc.h>
#include <pvm3.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    CREDIT_BYTES = 12 << 20,          /* the most bytes that are sent to one task and not yet received */
    CREDIT_BYTES_IN_ALL = 48 << 20,
    BURST_MAX = 300,                  /* the most messages in a row */
    QUIET_WAIT_MS = 50,
    SETTLING_WAITS = 4,
    LEAK_BYTES = 64 << 20, LEAK_DESCRIPTORS = 40
};

static struct random deciding, receiving;

static unsigned phase_now(void)
{
    return table->phase % PHASES;
}

static unsigned round_now(void)
{
    return table->phase / PHASES;
}

static void enter(enum state state)
{
    mine->round = round_now();
    mine->state = state;
}

/* Requests the exit notify of every new task. */
static void meet_new_tasks(void)
{
    static unsigned seen = 1;
    for (; seen < table->incarnations && table->logs[seen].tid != 0; seen++)
        if (seen != me && !table->logs[seen].dead)
            watch(seen);
}

/* ---- Sending ---- */

static unsigned random_size(struct random *random)
{
    static const unsigned edges[] = {0, 1, 4, 8, 16, 64, 400, 427, 428, 429, 430, 503, 504, 505, 4000, 4096, 65536,
                                     262144, 1 << 20, PAYLOAD_BYTES_MAX};
    unsigned roll = below(random, 100);
    if (roll < 35)
        return below(random, 64);
    if (roll < 60)
        return below(random, 1024);
    if (roll < 65)
        return edges[below(random, sizeof edges / sizeof *edges)];
    if (roll < 85)
        return below(random, 64 << 10);
    if (roll < 97)
        return below(random, 512 << 10);
    return below(random, PAYLOAD_BYTES_MAX + 1);
}

static uint64_t unreceived(unsigned peer)
{
    return mine->bytes_to[peer] - table->logs[peer].bytes_from[me];
}

static int has_credit(void)
{
    uint64_t sum = 0;
    unsigned index;
    for (index = 0; index < peer_count; index++)
        sum += unreceived(peers[index]);
    return sum < CREDIT_BYTES_IN_ALL;
}

/* Returns the task at a random other position, if this task knows it and has credit for it; otherwise 0. */
static unsigned random_target(struct random *random)
{
    unsigned target = table->current[below(random, table->tasks)];
    if (target == me || target == 0 || !mine->watched[target] || unreceived(target) > CREDIT_BYTES)
        return 0;
    return target;
}

static void send_to_many(struct random *random)
{
    unsigned targets[POSITIONS_MAX], count = 0, tries = below(random, 5) ? 1 + below(random, 8) : table->tasks, index;
    while (tries-- > 0) {
        unsigned target = random_target(random);
        for (index = 0; index < count && targets[index] != target; index++)
            ;
        if (target != 0 && index == count)
            targets[count++] = target;
    }
    if (count > 0)
        send_message(random, MCAST, targets, count, random_size(random), (struct note){0, 0});
}

/* Sends a long message to a task that waits in pvm_precv: the body may be copied directly into the memory of
 * that call. */
static int send_to_waiting(struct random *random)
{
    unsigned start = peer_count ? below(random, peer_count) : 0, index;
    for (index = 0; index < peer_count; index++) {
        unsigned target = peers[(start + index) % peer_count];
        if (table->logs[target].blind == BLIND_IN_PRECV && unreceived(target) < CREDIT_BYTES / 4) {
            unsigned size = (4 << 10) << below(random, 11);
            send_message(random, PSEND, &target, 1, size - below(random, size / 2), (struct note){0, 0});
            return 1;
        }
    }
    return 0;
}

static void send_something(struct random *random)
{
    unsigned way = below(random, 100), target = random_target(random), burst;
    if (way < 10) {
        send_to_many(random);
    } else if (way >= 85 && send_to_waiting(random)) {
        return;
    } else if (target == 0) {
        return;
    } else if (way < 40) {
        send_mini(random, target);
    } else if (way < 44) {
        for (burst = below(random, BURST_MAX); burst > 0; burst--)
            send_mini(random, target);
    } else {
        send_message(random, way < 75 ? PSEND : PACK, &target, 1, random_size(random), (struct note){0, 0});
    }
}

static void run_step(void)
{
    unsigned receives;
    if (mine->state != RUNNING || mine->round != round_now())
        enter(RUNNING);
    if (has_credit())
        send_something(&deciding);
    for (receives = 1 + below(&receiving, 4); receives > 0; receives--)
        receive_somehow(&receiving);
    if (!has_credit() && !anything_pending())
        receive_with_timeout(5);
}

/* ---- The ring: there is one message in the whole machine, and all tasks except its holder sleep ---- */

static int ring_by_psend(void)
{
    return round_now() % 2 == 0;
}

static void pass_on(struct note note)
{
    unsigned index, target;
    if (note.extra > 0) {
        target = peers[below(&deciding, peer_count)];
        note.extra--;
        send_message(&deciding, ring_by_psend() ? PSEND : PACK, &target, 1, random_size(&deciding) / 16, note);
        return;
    }
    table->ring_over = round_now();
    note.flags = FLAG_RING_OVER;
    if (!ring_by_psend())
        send_message(&deciding, MCAST, peers, peer_count, 10, note);
    for (index = 0; ring_by_psend() && index < peer_count; index++)
        send_message(&deciding, PSEND, &peers[index], 1, 10, note);
}

static void ring(void)
{
    struct note note = {0, 0};
    unsigned round = round_now();
    enter(RINGING);
    do {
        note = ring_by_psend() ? precv_message(-1, PAYLOAD_BYTES_MAX + 4096) : receive_any();
        if (note.flags & FLAG_TOKEN)
            pass_on(note);
    } while (note.flags != FLAG_RING_OVER && table->ring_over != round);
    while (note.flags != FLAG_RING_OVER && anything_pending() && table->phase == round * PHASES + RING)
        note = receive_any();
    while (table->phase == round * PHASES + RING)
        usleep(300);
}

/* ---- The end of a round ---- */

static void *volatile leaked;

static void leak(void)
{
    if (mine->position != 0 || round_now() < 2)
        return;
    if (mutated("leak-memory")) {
        /* Without a global pointer to the memory, a compiler omits the allocation (gcc 14 does). */
        leaked = malloc(LEAK_BYTES);
        memset(leaked, 1, LEAK_BYTES);
    }
    if (mutated("leak-descriptors"))
        for (int count = 0; count < LEAK_DESCRIPTORS; count++)
            open("/dev/null", O_RDONLY);
}

static void be_quiet(void)
{
    unsigned phase = table->phase, index;
    for (index = 0; index < peer_count; index++) {
        send_message(&deciding, PSEND, &peers[index], 1, 20, (struct note){0, 0});
        send_mini(&deciding, peers[index]);
    }
    enter(SILENT);
    while (!all_received()) {
        mine->loops++;
        if (anything_pending())
            receive_somehow(&receiving);
        else
            receive_with_timeout(10);
        if (table->phase != phase)
            return;
    }
    leak();
    /* A task keeps memory for its next long message until it has slept a few times. */
    for (int count = 0; count < SETTLING_WAITS; count++)
        receive_with_timeout(QUIET_WAIT_MS);
    enter(DRAINED);
    while (table->phase == phase) {
        struct mallinfo2 heap = mallinfo2();
        mine->heap_bytes = heap.uordblks + heap.hblkhd;
        mine->loops++;
        receive_with_timeout(QUIET_WAIT_MS);
    }
}

static void leave(enum state state)
{
    enter(state);
    doing("pvm_exit");
    pvm_exit();
    exit(0);
}

/* Returns the incarnation with this task's tid, if one spawn has started many tasks. */
static unsigned find_self(int tid)
{
    uint64_t start = now_ns();
    unsigned incarnation;
    while (now_ns() - start < table->patience * 1000000000ull) {
        for (incarnation = 1; incarnation < table->incarnations; incarnation++)
            if ((int)table->logs[incarnation].tid == tid)
                return incarnation;
        usleep(300);
    }
    exit(4);
}

static void be_born(const char *incarnation)
{
    int tid, parent;
    if (incarnation[0] != '-') {
        me = (unsigned)atoi(incarnation);
        mine = &table->logs[me];
        mine->pid = (unsigned)getpid();
        tid = pvm_mytid();
    } else {
        tid = pvm_mytid();
        me = find_self(tid);
        mine = &table->logs[me];
        mine->pid = (unsigned)getpid();
    }
    if (tid < 0)
        failed_call("pvm_mytid", tid);
    mine->own_tid = (unsigned)tid;
    while (mine->tid == 0)
        usleep(100);
    if ((int)mine->tid != tid)
        fail("pvm_mytid says t%x, pvm_spawn said t%x", (unsigned)tid, (unsigned)mine->tid);
    parent = pvm_parent();
    if (parent != (int)table->logs[0].own_tid)
        fail("pvm_parent gave %d", parent);
    deciding.state = mix(table->seed, me);
    receiving.state = mix(table->seed + 7, me);
    messages_start();
    enter(BORN);
}

int work(const char *incarnation)
{
    be_born(incarnation);
    for (;;) {
        mine->loops++;
        if (mine->fate == TO_LEAVE)
            leave(LEAVING);
        meet_new_tasks();
        switch (phase_now()) {
        case RING:
            ring();
            break;
        case RUN:
            run_step();
            break;
        case QUIET:
            be_quiet();
            break;
        case STOP:
            leave(STOPPED);
            break;
        default:
            usleep(300);
        }
    }
}
