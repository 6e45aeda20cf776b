/*
 * Hosts of four kinds in one machine. A chief on the first host tells workers what to do, one cell of
 * the matrix after the other: two workers on each host, one that sends and one that receives, and a
 * third that forwards.
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
/* Items of each type in a row; two more than this where strides leave gaps. */
#define ITEMS 6
/* How long anything may take, in seconds: qemu is slow. */
#define PATIENCE 60

/* A kind of host: its host's name in the tests, PVM's name for it, its data signature, sizeof(long). */
struct kind {
    const char *label, *host, *arch;
    int signature, long_bytes;
};
extern const struct kind kinds[KINDS];
/* How many of them are there: the first ones. */
extern int kind_count;

/* The data types, as psend knows them; the last is the string. */
enum type { T_BYTE, T_SHORT, T_INT, T_FLOAT, T_CPLX, T_DOUBLE, T_DCPLX, T_LONG, T_USHORT, T_UINT, T_ULONG, TYPES };
struct type_info {
    const char *name;
    int number;     /* PVM_BYTE... */
    int bytes;      /* of an item here */
    int numbers;    /* of which it consists */
};
extern const struct type_info types[TYPES];

/* Items of a type: the same numbers on every host. `items` has room for ITEMS of the largest. */
void make_items(int type, void *items);
/* Those that need 64 bits, for T_LONG and T_ULONG; on a host of 32 bits the largest that it has. Item
 * `LARGE_FIRST` is the first that needs more than 32 bits, if the maker has 64. */
#define LARGE_FIRST 2
void make_large(int type, void *items, int maker_long_bytes);
int pack_items(int type, void *items, int count, int stride);
int unpack_items(int type, void *items, int count, int stride);

/* Says what is wrong, for the report; gives the text. */
const char *wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Gives up with what is wrong. */
#define MUST(condition, ...)                                                                       \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return wrong(__VA_ARGS__);                                                             \
    } while (0)
/* Gives up where a call does not give what it should. */
#define EXPECT(call, value)                                                                        \
    do {                                                                                           \
        int got_ = (call), want_ = (value);                                                        \
        if (got_ != want_)                                                                         \
            return wrong("%s gives %d, not %d", #call, got_, want_);                               \
    } while (0)
/* Gives up where a call fails. */
#define WELL(call)                                                                                 \
    do {                                                                                           \
        int got_ = (call);                                                                         \
        if (got_ < 0)                                                                              \
            return wrong("%s gives %d", #call, got_);                                              \
    } while (0)

/* Receives with a limit. */
int receive(int from, int tag);

/* What a worker is told of the cell. */
struct cell {
    int row;
    int from, to;           /* kinds */
    int sender, receiver;   /* tids */
    int via, forwarder;     /* a third, where there is one */
    int tag;
};

/* What a task does for a cell; gives null, or what is wrong. */
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
    int via;    /* the kind of the third one, or -1 */
    int by_both_routes;
};
#define ROWS_MAX 200
extern struct row rows[ROWS_MAX];
extern int row_count;
void make_rows(void);
/* A row whose steps are these; without a sender's action it is null. */
void make_row(const char *name, int argument, int via, const struct step steps[STEPS_MAX]);
/* One that sends, one that receives. */
void make_pair(const char *name, int argument, action send, action check);
void messages_rows(void);
void machine_rows(void);

/* The kind of the host that this runs on. */
int own_kind(void);
/* Whether two kinds write numbers alike. */
int alike(int one, int other);
/* Items that this task has converted. */
int converted(void);

/* What children do. */
int child_main(int count, char **arguments);

#define TAG_COMMAND 1
#define TAG_REPORT 2
#define TAG_CHILD 4
#define TAG_LOST 5
#define TAG_ADDED 6
/* Each cell has a tag of its own from here on. */
#define TAG_CELLS 1000

#endif
