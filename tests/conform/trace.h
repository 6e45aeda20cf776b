/* A collector of traces, for cases: reads trace messages by calls of the library and prints their contents,
 * with a word in place of values that differ between correct runs. */
#ifndef TRACE_H
#define TRACE_H

#include "case.h"
#include <sys/wait.h>

#define TRACE_TAG 777

/* The types of the data of an event, as its first record declares them. */
struct trace_kind {
    int known;
    int count;
    int data[16];
    int types[16];
};

#define TRACE_SENDERS 256

/* Indexed by sender (0 for the daemon), by entry, exit or neither, and by event. */
static struct trace_kind trace_kinds[TRACE_SENDERS][3][TEV_MAX + 1];

/* A symbol of the library that the header does not declare. */
extern struct Pvmtevinfo pvmtevinfo[];
extern struct Pvmtevdid pvmtevdidlist[];

/* Returns whether numbers of this meaning differ from run to run. */
static int trace_varies(int data)
{
    switch (data) {
    case TEV_DID_TS: case TEV_DID_TU: case TEV_DID_TGS: case TEV_DID_TGU:
    case TEV_DID_TUS: case TEV_DID_TUU: case TEV_DID_TSS: case TEV_DID_TSU:
        return 1;
    }
    return 0;
}

static int trace_is_buffer(int data)
{
    return data == TEV_DID_MB || data == TEV_DID_MRB || data == TEV_DID_MSB || data == TEV_DID_CR || data == TEV_DID_CD
        || data == TEV_DID_FDS;
}

static int trace_is_tid(int data, int value)
{
    return value > 0x40000 && value < 0x80000 && data != TEV_DID_AC;
}

/* The first context in a trace: its number may be that of a task. */
static int trace_context;

static int trace_is_context(int data, int value)
{
    if (data == TEV_DID_CXN && trace_context == 0)
        trace_context = value;
    if (data != TEV_DID_CXN && data != TEV_DID_CXS && data != TEV_DID_CXC && data != TEV_DID_CXF && data != TEV_DID_CC)
        return 0;
    return value > 0 && value == trace_context;
}

/* Whether to print which records describe their data. */
static int trace_show_known;
/* Whether to receive messages without printing. */
static int trace_quiet;

static void trace_say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (!trace_quiet)
        vprintf(format, arguments);
    va_end(arguments);
}

static void trace_int(int data)
{
    int value = 0;
    pvm_upkint(&value, 1, 1);
    if (trace_varies(data))
        trace_say("time");
    else if (trace_is_buffer(data) && value > 0)
        trace_say("number");
    else if (trace_is_context(data, value))
        trace_say("context");
    else if (trace_is_tid(data, value))
        trace_say("t%x", value);
    else
        trace_say("%d", value);
}

static void trace_value(int data, int type)
{
    char text[4096];
    long address;
    int count = 1;
    if (type & TEV_DATA_ARRAY) {
        pvm_upkint(&count, 1, 1);
        trace_say("[%d]", count);
    }
    for (; count > 0; count--) {
        trace_say(type & TEV_DATA_ARRAY ? " " : "");
        switch (type & ~TEV_DATA_ARRAY) {
        case TEV_DATA_INT:
            trace_int(data);
            break;
        case TEV_DATA_LONG:
            pvm_upklong(&address, 1, 1);
            trace_say(address ? "address" : "null");
            break;
        case TEV_DATA_STRING:
            pvm_upkstr(text);
            trace_say("\"%s\"", text);
            break;
        default:
            trace_say("type %d", type);
        }
    }
}

static const char *trace_when(int event)
{
    if (event & TEV_EVENT_ENTRY)
        return " begins";
    return event & TEV_EVENT_EXIT ? " ends" : "";
}

/* Prints a record; `described`: whether it contains the names and types of its data. */
static void trace_record(int source, int described)
{
    char name[64];
    int event = 0, number, place, end, data = 0;
    struct trace_kind *kind;
    pvm_upkint(&event, 1, 1);
    number = event & ~(TEV_EVENT_ENTRY | TEV_EVENT_EXIT);
    if (number < 0 || number > TEV_MAX) {
        trace_say("event %d\n", event);
        return;
    }
    kind = &trace_kinds[source < 0 ? 0 : source % TRACE_SENDERS][(event & TEV_EVENT_ENTRY) != 0 ? 0 : (event & TEV_EVENT_EXIT) != 0 ? 1 : 2][number];
    if (described) {
        pvm_upkstr(name);
        kind->known = 1;
        kind->count = 0;
    } else if (!kind->known) {
        trace_say("event %d was not described\n", event);
        return;
    } else {
        strcpy(name, pvmtevinfo[number].name);
    }
    trace_say("  %s%s%s:", described || !trace_show_known ? "" : "again ", name, trace_when(event));
    for (place = 0; place < 16; place++) {
        if (described) {
            pvm_upkint(&data, 1, 1);
            if (data == TEV_MARK_EVENT_DESC_END)
                break;
            kind->data[place] = data;
            pvm_upkint(&kind->types[place], 1, 1);
            kind->count++;
        } else if (place == kind->count) {
            pvm_upkint(&end, 1, 1);
            if (end != TEV_MARK_EVENT_RECORD_END)
                trace_say(" end %d", end);
            break;
        }
        trace_say(" %s=", pvmtevdidlist[kind->data[place]].did);
        trace_value(kind->data[place], kind->types[place]);
    }
    trace_say("\n");
}

/* Prints the list of data that a daemon sends first. */
static void trace_list(void)
{
    char name[64], description[256];
    int number = 0, count = 0, wrong = 0;
    for (;; count++) {
        pvm_upkint(&number, 1, 1);
        if (number == TEV_MARK_DATA_ID_END || count > 1000)
            break;
        pvm_upkstr(name);
        pvm_upkstr(description);
        wrong += number != count || strcmp(name, pvmtevdidlist[number].did) != 0;
    }
    trace_say("  list of %d data, %d wrong\n", count, wrong);
}

/* Prints an event of the program itself; `told` prints the data after the head. */
static void trace_user(void (*told)(void))
{
    char name[64];
    int event = 0, time[2], end = 0;
    pvm_upkint(&event, 1, 1);
    pvm_upkstr(name);
    pvm_upkint(time, 2, 1);
    trace_say("  %s %d:", name, event);
    if (told)
        told();
    pvm_upkint(&end, 1, 1);
    trace_say(end == TEV_MARK_USER_EVENT_RECORD_END ? "\n" : " end %d\n", end);
}

static void (*trace_user_told)(void);

/* Prints the active receive buffer. */
static void trace_print(void)
{
    int mark, bytes, tag, source, encoding;
    struct pvmminfo info;
    pvm_getminfo(pvm_getrbuf(), &info);
    pvm_bufinfo(pvm_getrbuf(), &bytes, &tag, &source);
    encoding = info.enc;
    trace_say("from %s, context %d, tag %d, encoding %x\n", source < 0 ? "daemon" : "task", info.ctx, tag, encoding);
    while (pvm_upkint(&mark, 1, 1) >= 0) {
        switch (mark) {
        case TEV_MARK_EVENT_BUFFER:
            trace_say("  {\n");
            break;
        case TEV_MARK_EVENT_BUFFER_END:
            trace_say("  }\n");
            break;
        case TEV_MARK_DATA_ID:
            trace_list();
            break;
        case TEV_MARK_EVENT_DESC:
            trace_record(source, 1);
            break;
        case TEV_MARK_EVENT_RECORD:
            trace_record(source, 0);
            break;
        case TEV_MARK_USER_EVENT_RECORD:
            trace_user(trace_user_told);
            break;
        default:
            trace_say("  mark %d\n", mark);
            return;
        }
    }
}

/* Prints the messages that arrive, until none has arrived for some time. */
static void trace_collect(void)
{
    int old = pvm_setopt(PvmAutoErr, 0);
    while (case_receive(-1, -1, 0.5) > 0)
        trace_print();
    pvm_setopt(PvmAutoErr, old);
}

/* Does the same, but prints only the traces of tasks, which have the tag TRACE_TAG. */
static void trace_collect_tasks(void)
{
    int tag, source, old = pvm_setopt(PvmAutoErr, 0);
    while (case_receive(-1, -1, 0.5) > 0) {
        pvm_bufinfo(pvm_getrbuf(), NULL, &tag, &source);
        trace_quiet = source < 0 || tag != TRACE_TAG;
        trace_print();
        trace_quiet = 0;
    }
    pvm_setopt(PvmAutoErr, old);
}

/* Runs this program as `role` and waits for its end; it is not spawned, but enrolls itself. */
static void trace_run(char *role)
{
    char own[16];
    pid_t child;
    sprintf(own, "%x", pvm_mytid());
    fflush(stdout);
    child = fork();
    if (child == 0) {
        execl(case_path(), "case", role, own, (char *)NULL);
        _exit(99);
    }
    waitpid(child, NULL, 0);
}

/* Called in such a task: chooses the task that ran it as the collector of all its events except those in `not`. */
static void trace_to(char *collector, int options, const int *not)
{
    Pvmtmask mask;
    int event;
    pvm_mytid();
    TEV_MASK_INIT(mask);
    for (event = 0; event <= TEV_MAX; event++)
        TEV_MASK_SET(mask, event);
    for (; not && *not >= 0; not++)
        TEV_MASK_UNSET(mask, *not);
    pvm_setopt(PvmSelfTraceOptions, options);
    pvm_setopt(PvmSelfTraceTid, (int)strtol(collector, NULL, 16)); /* with tag 0 until the next call */
    pvm_setopt(PvmSelfTraceCode, TRACE_TAG);
    pvm_settmask(PvmTaskSelf, mask);
}

#endif
