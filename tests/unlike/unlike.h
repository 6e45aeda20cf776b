/* Hosts of four kinds in one machine. A chief on the first host gives commands to workers, for one cell
 * of the matrix after the other: on each host one worker that sends, one that receives, and one that
 * forwards.
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
/* Items of each type in a row; two more than this if strides leave gaps. */
#define ITEMS 6
/* The longest time for anything, in seconds: qemu is slow. */
#define PATIENCE 60

/* A kind of host: its host's name in the tests, PVM's name of it, its data signature, sizeof(long).
 */
struct kind {
    const char *label, *host, *arch;
    int signature, long_bytes;
};
extern const struct kind kinds[KINDS];
/* How many of them exist: the first ones. */
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
/* The same with values that need 64 bits, for T_LONG and T_ULONG; on a 32-bit host the largest that
 * it has. Item `LARGE_FIRST` is the first that needs more than 32 bits, if the maker has 64. */
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
/* Returns an error unless the call has this value. */
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

/* A cell, as workers get it. */
struct cell {
    int row;
    int from, to;           /* kinds */
    int sender, receiver;   /* tids */
    int via, forwarder;     /* a third one, if any */
    int tag;
};

/* What a task does for a cell; returns null or the error. */
typedef const char *(*action)(const struct cell *cell, int argument);
enum who { SENDER, RECEIVER, FORWARDER };
struct step {
    enum who who;
    action action;
};
#define STEPS_MAX 6
/* A row of the matrix: steps one after the other. */
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
/* Makes a row of these steps; a row without a sender's action has null. */
void make_row(const char *name, int argument, int via, const struct step steps[STEPS_MAX]);
/* Makes a row with one that sends and one that receives. */
void make_pair(const char *name, int argument, action send, action check);
void messages_rows(void);
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
/* Each cell has a tag of its own from here on. */
#define TAG_CELLS 1000

#endif
