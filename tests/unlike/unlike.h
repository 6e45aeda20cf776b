/* Tests a machine of hosts of four kinds. A row of the matrix is a test, a cell is this test between two hosts.
 * For one cell after the other, a chief on the first host sends commands to workers; on each host one worker
 * sends, one receives, and one forwards.
 */
#ifndef UNLIKE_H
#define UNLIKE_H

#include <pvm3.h>
#include <pvmtev.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

extern int pvm_catchout(FILE *file);

#define KINDS 4
/* The number of items of each type in a test. */
#define ITEMS 6
/* The longest time that a step may take, in seconds; qemu is slow. */
#define PATIENCE 60

/* A kind of host: its name in reports, its host, PVM's name of the architecture, its data signature, and its
 * sizeof(long).
 */
struct kind {
    const char *label, *host, *arch;
    int signature, long_bytes;
};
extern const struct kind kinds[KINDS];
/* How many of these kinds the machine has; they are the first ones. */
extern int kind_count;

/* The data types of psend; the last is the string. */
enum type { T_BYTE, T_SHORT, T_INT, T_FLOAT, T_CPLX, T_DOUBLE, T_DCPLX, T_LONG, T_USHORT, T_UINT, T_ULONG, TYPES };
struct type_info {
    const char *name;
    int number;     /* PVM_BYTE... */
    int bytes;      /* of an item on this host */
    int numbers;    /* in each item */
};
extern const struct type_info types[TYPES];

/* Makes items of a type: the same numbers on every host. `items` has room for ITEMS of the largest.
 */
void make_items(int type, void *items);
/* The same for T_LONG and T_ULONG, with values that need 64 bits; if the maker has a 32-bit long, the largest
 * values that fit. From item `LARGE_FIRST` on, values of a 64-bit maker need more than 32 bits. */
#define LARGE_FIRST 2
void make_large(int type, void *items, int maker_long_bytes);
int pack_items(int type, void *items, int count, int stride);
int unpack_items(int type, void *items, int count, int stride);

/* Formats an error for the report. Returns the text. */
const char *wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Returns an error unless the condition holds. */
#define MUST(condition, ...)                                                                       \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return wrong(__VA_ARGS__);                                                             \
    } while (0)
/* Returns an error unless the call returns this value. */
#define EXPECT(call, value)                                                                        \
    do {                                                                                           \
        int got_ = (call), want_ = (value);                                                        \
        if (got_ != want_)                                                                         \
            return wrong("%s gives %d, not %d", #call, got_, want_);                               \
    } while (0)
/* Returns an error if the call fails. */
#define WELL(call)                                                                                 \
    do {                                                                                           \
        int got_ = (call);                                                                         \
        if (got_ < 0)                                                                              \
            return wrong("%s gives %d", #call, got_);                                              \
    } while (0)

/* Receives with a time limit. */
int receive(int from, int tag);

/* The description of a cell that workers receive. */
struct cell {
    int row;
    int from, to;           /* kinds */
    int sender, receiver;   /* tids */
    int via, forwarder;     /* kind and tid of a third host, if there is one */
    int tag;
};

/* A function that a task executes for a cell; returns null or the error. */
typedef const char *(*action)(const struct cell *cell, int argument);
enum who { SENDER, RECEIVER, FORWARDER };
struct step {
    enum who who;
    action action;
};
#define STEPS_MAX 6
/* A row of the matrix: a test that consists of successive steps. */
struct row {
    char name[40];
    struct step steps[STEPS_MAX];
    int argument;
    int via;    /* the kind of the third host, or -1 */
    int by_both_routes;
};
#define ROWS_MAX 200
extern struct row rows[ROWS_MAX];
extern int row_count;
void make_rows(void);
/* Makes a row of these steps. */
void make_row(const char *name, int argument, int via, const struct step steps[STEPS_MAX]);
/* Makes a row with two steps: one worker sends, another one receives and checks. */
void make_pair(const char *name, int argument, action send, action check);
void messages_rows(void);
void fmp_rows(void);
void machine_rows(void);

/* Returns the kind of this host. */
int own_kind(void);
/* Returns whether two kinds have the same data format. */
int alike(int one, int other);
/* Returns how many items this task has converted. */
int converted(void);

/* Runs a child. */
int child_main(int count, char **arguments);

#define TAG_COMMAND 1
#define TAG_REPORT 2
#define TAG_CHILD 4
#define TAG_LOST 5
#define TAG_ADDED 6
/* The first tag of the cells; each cell has its own tag. */
#define TAG_CELLS 1000

#endif
