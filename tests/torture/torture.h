/* Torture: many tasks send and receive in every way that PVM offers while some of them are killed. One shared
 * file, the table, contains counters of the messages that each task has sent and received; a task updates them
 * after each completed step. The counters of a dead task stay, so that they can be compared exactly with those
 * of the receivers. The table is not a part of the tested system: no message travels through it. Each life of a
 * task is an incarnation: number 0 is the chief (chief.c), the others are workers (worker.c). A worker that
 * dies is replaced by a new incarnation at the same position.
 */
#ifndef TORTURE_H
#define TORTURE_H

#include <stdatomic.h>
#include <stdint.h>

enum {
    INCARNATIONS_MAX = 4096,
    POSITIONS_MAX = 128,
    PAYLOAD_BYTES_MAX = 4 << 20,
    MINI_BYTES_MAX = 40,
    LATEST = 2,               /* how many messages of a class to a task have the time of their end in the table */
    ERROR_BYTES_MAX = 400
};

/* The classes of messages: each has its own tag, and its own count for each pair of tasks. */
enum class { PSEND, PACK, MCAST, MINI, CLASSES };

enum {
    TAG_PSEND = 1000,         /* + class */
    TAG_EXIT = 2000,
    TAG_MINI = 0x40000000     /* + number in the pair, since mini messages contain nothing else */
};

/* The phase that the chief has set. Stored as round * PHASES + phase. */
enum phase { STARTING, RING, RUN, QUIET, STOP, PHASES };

/* What a task is doing. */
enum state { UNBORN, BORN, RINGING, RUNNING, SILENT, DRAINED, LEAVING, LOST_DAEMON, STOPPED, FAILED };

/* The way in which a task is expected to end. */
enum fate { LIVES, TO_BE_KILLED, TO_LEAVE };

typedef uint32_t counts[CLASSES];

/* Whether a task waits in a call that only the next message ends. */
enum blind { SEES, BLIND_IN_RECV, BLIND_IN_PRECV };

/* Written by its task alone, except the first group, which the chief writes. */
struct log {
    /* by the chief */
    atomic_uint tid;          /* 0 until spawned */
    atomic_uint fate, dead;   /* dead: the exit notify has reached the chief */
    unsigned position;
    /* by the task */
    atomic_uint pid, own_tid, state, round, loops;
    atomic_uint blind;               /* the call in which it waits for any message */
    atomic_ullong messages_sent, bytes_sent, messages_received, bytes_received;
    atomic_ullong heap_bytes;        /* memory in use by malloc; measured while nobody sends */
    atomic_ullong wait_longest_ns;   /* from a send to the end of the receive that waited for the message */
    char doing[96];                  /* the current call */
    char error[ERROR_BYTES_MAX];
    /* by the task, one entry for each other incarnation */
    atomic_uint begun[INCARNATIONS_MAX][CLASSES];     /* sends that were begun */
    atomic_uint sent[INCARNATIONS_MAX][CLASSES];      /* sends that returned */
    atomic_uint received[INCARNATIONS_MAX][CLASSES];
    /* when the latest sends returned, by number: the time in units of 16 ns above the low 16 bits of the number */
    atomic_ullong sent_at[INCARNATIONS_MAX][CLASSES][LATEST];
    atomic_ullong bytes_to[INCARNATIONS_MAX];         /* begun */
    atomic_ullong bytes_from[INCARNATIONS_MAX];
    atomic_uchar watched[INCARNATIONS_MAX];           /* has requested its exit notify */
    atomic_uchar notified[INCARNATIONS_MAX];          /* has received it */
};

struct table {
    uint64_t seed;
    unsigned tasks, immortals;       /* positions below `immortals` are never killed */
    unsigned patience;               /* seconds, after which a wait counts as a hang */
    atomic_uint phase, ring_over, may_lose_daemon;
    unsigned strangers;              /* tasks that do not belong to this test may send too */
    atomic_uint incarnations;        /* in use, including the chief */
    atomic_uint current[POSITIONS_MAX];
    char mutation[24];               /* a deliberate error, to prove that it is detected */
    struct log logs[INCARNATIONS_MAX];
};

/* common.c */
extern struct table *table;
extern struct log *mine;             /* &table->logs[me] */
extern unsigned me;

void table_open(const char *path, int create);
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Handles a failed call: ends the task normally if the caller kills daemons on purpose; otherwise reports the
 * failure. */
_Noreturn void failed_call(const char *call, int code);
void doing(const char *format, ...) __attribute__((format(printf, 1, 2)));
void done_doing(void);
uint64_t now_ns(void);
int mutated(const char *name);

struct random { uint64_t state; };
uint64_t mix(uint64_t a, uint64_t b);
uint64_t draw(struct random *random);
unsigned below(struct random *random, unsigned bound);

/* message.c: makes, sends, reads and checks messages */
enum { FLAG_TOKEN = 1, FLAG_RING_OVER = 2 };

struct note {                        /* properties of a message that its receiver needs */
    unsigned flags, extra;
};

void messages_start(void);
/* Sends one message of `size` bytes to each of the incarnations, in a random way. */
void send_message(struct random *random, enum class class, const unsigned *to, unsigned count, unsigned size,
                  struct note note);
void send_mini(struct random *random, unsigned to);
/* Reads the active receive buffer. `any_tag`: the receive requested the oldest message of its
 * sender; with `any_source`, too, the oldest of all. */
struct note take_message(int buffer, int any_tag, int any_source);
/* Returns whether the sender does not belong to this test; its messages are ignored. */
int is_stranger(int tid);
/* Calls pvm_precv of class PSEND from an incarnation or from any (-1). */
struct note precv_message(int from, int room);

/* receive.c: all ways to receive, and the exit notifies */
void watch(unsigned incarnation);
int pending_class(unsigned from, enum class class);
int anything_pending(void);
struct note receive_any(void);                    /* waits for the oldest message */
void receive_somehow(struct random *random);      /* waits only if a message must come */
void receive_with_timeout(int milliseconds);
int all_received(void);
void explain_missing(char *text, unsigned room);
extern unsigned peers[INCARNATIONS_MAX], peer_count; /* known to this task, and not yet reported dead */

/* worker.c, chief.c */
int work(const char *incarnation);
int lead(int argc, char **argv);

#endif
