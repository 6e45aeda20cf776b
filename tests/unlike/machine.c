/* Rows about operations of tasks on unlike hosts. */
#include "unlike.h"

#define MAILBOX "unlike.mailbox"
#define TRACE_TAG 777

static int host_of_kind(int kind)
{
    struct pvmhostinfo *hosts;
    int count, i;
    if (pvm_config(&count, NULL, &hosts) < 0)
        return -1;
    for (i = 0; i < count; i++)
        if (!strcmp(hosts[i].hi_name, kinds[kind].host))
            return hosts[i].hi_tid;
    return -1;
}

static int spawn_child(int kind, char **arguments)
{
    int tid = 0, count = pvm_spawn("unlike", arguments, PvmTaskHost, (char *)kinds[kind].host, 1, &tid);
    return count == 1 ? tid : tid < 0 ? tid : -1;
}

/* ----- Mailboxes */

static const char *put_info(const struct cell *cell, int encoding)
{
    int number = -9, index;
    long large = -77777;
    double real = 0.1;
    (void)cell;
    WELL(pvm_initsend(encoding));
    if (encoding == PvmDataDefault) {
        EXPECT(pvm_pkint(&number, 1, 1), 0);
        EXPECT(pvm_pklong(&large, 1, 1), 0);
        EXPECT(pvm_pkdouble(&real, 1, 1), 0);
        EXPECT(pvm_pkstr("in a box"), 0);
    } else {
        EXPECT(pvm_pkint(&number, 1, 1), 0);
    }
    WELL(index = pvm_putinfo(MAILBOX, pvm_getsbuf(), PvmMboxOverWritable | PvmMboxPersistent));
    return NULL;
}

static const char *get_info(const struct cell *cell, int encoding)
{
    int mid, number = 0, old;
    long large = 0;
    double real = 0;
    char text[20];
    WELL(mid = pvm_recvinfo(MAILBOX, 0, PvmMboxReadAndDelete));
    old = pvm_setrbuf(mid);
    if (encoding == PvmDataDefault) {
        EXPECT(pvm_upkint(&number, 1, 1), 0);
        EXPECT(number, -9);
        EXPECT(pvm_upklong(&large, 1, 1), 0);
        EXPECT((int)large, -77777);
        EXPECT(pvm_upkdouble(&real, 1, 1), 0);
        MUST(real == 0.1, "%g", real);
        EXPECT(pvm_upkstr(text), 0);
        EXPECT(strcmp(text, "in a box"), 0);
    } else {
        EXPECT(pvm_upkint(&number, 1, 1), alike(cell->from, cell->to) ? 0 : PvmBadMsg);
    }
    pvm_setrbuf(old);
    pvm_freebuf(mid);
    return NULL;
}

/* The number of a server is stored in a mailbox too (pvm_insert, pvm_lookup). */
static const char *insert(const struct cell *cell, int argument)
{
    (void)cell;
    EXPECT(pvm_insert("unlike.number", 0, argument), 0);
    return NULL;
}

static const char *look_up(const struct cell *cell, int argument)
{
    int value = 0;
    (void)cell;
    EXPECT(pvm_lookup("unlike.number", 0, &value), 0);
    EXPECT(value, argument);
    return NULL;
}

static const char *delete_number(const struct cell *cell, int argument)
{
    (void)cell, (void)argument;
    EXPECT(pvm_delete("unlike.number", 0), 0);
    return NULL;
}

/* ----- Notify, output, spawn, traces: the receiver's children on the sender's host */

static const char *check_notify(const struct cell *cell, int argument)
{
    char *arguments[] = {"sleep", NULL};
    int child, told = 0;
    (void)argument;
    WELL(child = spawn_child(cell->from, arguments));
    EXPECT(pvm_notify(PvmTaskExit, cell->tag, 1, &child), 0);
    EXPECT(pvm_kill(child), 0);
    WELL(receive(-1, cell->tag));
    EXPECT(pvm_upkint(&told, 1, 1), 0);
    EXPECT(told, child);
    return NULL;
}

static const char *check_catchout(const struct cell *cell, int argument)
{
    char *arguments[] = {"print", NULL}, line[200], name[40];
    FILE *file = tmpfile();
    char all[150];
    int child, lines = 0, end = 0;
    struct timeval pause = {0, 50000};
    double waited;
    (void)argument;
    MUST(file, "no file");
    EXPECT(pvm_catchout(file), 0);
    WELL(child = spawn_child(cell->from, arguments));
    snprintf(name, sizeof name, "[t%x] ", child);
    for (waited = 0; waited < 20 && !end; waited += 0.05) {
        /* The output of children arrives only during library calls. */
        pvm_trecv(child, cell->tag, &pause);
        rewind(file);
        lines = 0;
        *all = 0;
        while (fgets(line, sizeof line, file)) {
            strncat(all, line, sizeof all - strlen(all) - 1);
            if (strncmp(line, name, strlen(name)))
                continue;
            lines += strstr(line, "line ") && strstr(line, kinds[cell->from].label);
            end |= strstr(line, "EOF") != NULL;
        }
        fseek(file, 0, SEEK_END);
    }
    EXPECT(pvm_catchout(NULL), 0);
    fclose(file);
    MUST(end, "of %sno end in `%s`", name, all);
    EXPECT(lines, 3);
    return NULL;
}

static const char *check_child(const struct cell *cell, int child, int by_arch)
{
    char label[20], first[20], second[20], third[20];
    int parent, count, signature;
    WELL(receive(child, TAG_CHILD));
    EXPECT(pvm_upkint(&parent, 1, 1), 0);
    EXPECT(parent, pvm_mytid());
    EXPECT(pvm_upkint(&count, 1, 1), 0);
    EXPECT(count, 5);
    EXPECT(pvm_upkint(&signature, 1, 1), 0);
    EXPECT(pvm_upkstr(label), 0);
    EXPECT(pvm_upkstr(first), 0);
    EXPECT(pvm_upkstr(second), 0);
    EXPECT(pvm_upkstr(third), 0);
    MUST(!strcmp(first, "a b") && !strcmp(second, "") && !strcmp(third, "\303\274$x"), "`%s` `%s` `%s`", first, second,
         third);
    MUST(!strcmp(label, kinds[cell->from].label) || by_arch, "a child of kind %s", label);
    EXPECT(signature, kinds[cell->from].signature);
    return NULL;
}

static const char *check_spawn(const struct cell *cell, int by_arch)
{
    char *arguments[] = {"hello", "a b", "", "\303\274$x", NULL};
    int child = 0, count, i, where, hosts;
    struct pvmhostinfo *table;
    if (!by_arch) {
        WELL(child = spawn_child(cell->from, arguments));
        EXPECT(pvm_tidtohost(child), host_of_kind(cell->from));
        return check_child(cell, child, 0);
    }
    EXPECT(count = pvm_spawn("unlike", arguments, PvmTaskArch, (char *)kinds[cell->from].arch, 1, &child), 1);
    where = pvm_tidtohost(child);
    WELL(pvm_config(&hosts, NULL, &table));
    for (i = 0; i < hosts; i++)
        if (table[i].hi_tid == where)
            EXPECT(strcmp(table[i].hi_arch, kinds[cell->from].arch), 0);
    return check_child(cell, child, 1);
}

/* Checks a trace event of the child itself, and one of the library. */
static const char *check_trace(const struct cell *cell, int argument)
{
    char *arguments[] = {"trace", NULL}, text[40];
    int child, number, count, seconds, entry = 0, own = 0, i;
    double real;
    long large;
    Pvmtmask mask;
    (void)argument;
    TEV_MASK_INIT(mask);
    TEV_MASK_SET(mask, TEV_USER_DEFINED);
    TEV_MASK_SET(mask, TEV_PSTAT);
    EXPECT(pvm_settmask(PvmTaskChild, mask), 0);
    WELL(pvm_setopt(PvmTraceTid, pvm_mytid()));
    WELL(pvm_setopt(PvmTraceOptions, PvmTraceFull));
    WELL(pvm_setopt(PvmTraceCode, TRACE_TAG));
    WELL(child = spawn_child(cell->from, arguments));
    WELL(pvm_setopt(PvmTraceTid, 0));
    TEV_MASK_INIT(mask);
    EXPECT(pvm_settmask(PvmTaskChild, mask), 0);
    for (i = 0; i < 20 && !(own && entry >= 1); i++) {
        struct timeval limit = {10, 0};
        if (pvm_trecv(child, TRACE_TAG, &limit) <= 0)
            break;
        while (pvm_upkint(&number, 1, 1) == 0) {
            if (number == TEV_MARK_EVENT_BUFFER || number == TEV_MARK_EVENT_BUFFER_END) {
                continue;
            } else if (number == TEV_MARK_DATA_ID) {
                while (pvm_upkint(&number, 1, 1) == 0 && number != TEV_MARK_DATA_ID_END) {
                    EXPECT(pvm_upkstr(text), 0);
                    EXPECT(pvm_upkstr(text), 0);
                }
            } else if (number == TEV_MARK_EVENT_DESC) {
                EXPECT(pvm_upkint(&number, 1, 1), 0);
                MUST((number & ~(TEV_EVENT_ENTRY | TEV_EVENT_EXIT)) == TEV_PSTAT
                         || (number & ~(TEV_EVENT_ENTRY | TEV_EVENT_EXIT)) == TEV_NEWTASK
                         || (number & ~(TEV_EVENT_ENTRY | TEV_EVENT_EXIT)) == TEV_SPNTASK
                         || (number & ~(TEV_EVENT_ENTRY | TEV_EVENT_EXIT)) == TEV_ENDTASK,
                     "event %d", number);
                EXPECT(pvm_upkstr(text), 0);
                MUST(text[0] >= 'a' && text[0] <= 'z', "an event named `%s`", text);
                entry += !strcmp(text, "pstat");
                break;
            } else if (number == TEV_MARK_USER_EVENT_RECORD) {
                EXPECT(pvm_upkint(&number, 1, 1), 0);
                EXPECT(number, TEV_USER_DEFINED);
                EXPECT(pvm_upkstr(text), 0);
                EXPECT(pvm_upkint(&seconds, 1, 1), 0);
                MUST(seconds > 1700000000, "at %d seconds", seconds);
                EXPECT(pvm_upkint(&seconds, 1, 1), 0);
                EXPECT(pvm_upkint(&number, 1, 1), 0);
                EXPECT(number, TEV_DATA_DOUBLE);
                EXPECT(pvm_upkdouble(&real, 1, 1), 0);
                MUST(real == -2.5, "%g", real);
                EXPECT(pvm_upkint(&number, 1, 1), 0);
                EXPECT(number, TEV_DATA_LONG | TEV_DATA_ARRAY);
                EXPECT(pvm_upkint(&count, 1, 1), 0);
                EXPECT(count, 2);
                EXPECT(pvm_upklong(&large, 1, 1), 0);
                EXPECT((int)large, -40000);
                EXPECT(pvm_upklong(&large, 1, 1), 0);
                EXPECT((int)large, 1 << 30);
                own = 1;
                break;
            } else {
                break;
            }
        }
    }
    MUST(own, "no event of the program's own; %d of the library", entry);
    MUST(entry >= 1, "%d events of the library", entry);
    return NULL;
}

/* ----- Groups */

/* Each cell has a group of its own. */
static char *group_of(const struct cell *cell)
{
    static char name[40];
    snprintf(name, sizeof name, "unlike.%d", cell->tag);
    return name;
}

static const char *join(const struct cell *cell, int argument)
{
    (void)argument;
    WELL(pvm_joingroup(group_of(cell)));
    return NULL;
}

static const char *leave(const struct cell *cell, int argument)
{
    (void)argument;
    EXPECT(pvm_lvgroup(group_of(cell)), 0);
    return NULL;
}

#define LONG_SHARE 5000
/* The sender's share goes to the root, which is the receiver and the first member. */
static const char *reduce_as(const struct cell *cell, int is_root)
{
    short shorts[2] = {is_root ? 5 : -300, 7};
    int ints[3] = {is_root ? 1 : 1 << 20, -1, is_root}, gathered[4] = {0};
    long longs[2] = {is_root ? 10 : -70000, 1}, long_gathered[4] = {0};
    float floats[2] = {is_root ? 0.5f : 0.25f, 2};
    double doubles[1] = {is_root ? 3 : 1e100};
    float complex_number[2] = {1, is_root ? 2 : -4};
    signed char bytes[3] = {is_root, 100, -5};
    static int many[LONG_SHARE];
    char *group = group_of(cell);
    int i, info, mine = pvm_getinst(group, pvm_mytid()), root = pvm_gettid(group, 0) == pvm_mytid() ? mine : 0;
    EXPECT(pvm_reduce(PvmSum, shorts, 2, PVM_SHORT, 1, group, root), 0);
    EXPECT(pvm_reduce(PvmMax, ints, 3, PVM_INT, 2, group, root), 0);
    EXPECT(pvm_reduce(PvmSum, longs, 2, PVM_LONG, 3, group, root), 0);
    EXPECT(pvm_reduce(PvmProduct, floats, 2, PVM_FLOAT, 4, group, root), 0);
    EXPECT(pvm_reduce(PvmMin, doubles, 1, PVM_DOUBLE, 5, group, root), 0);
    EXPECT(pvm_reduce(PvmSum, complex_number, 1, PVM_CPLX, 6, group, root), 0);
    EXPECT(pvm_reduce(PvmMax, bytes, 3, PVM_BYTE, 7, group, root), 0);
    for (i = 0; i < LONG_SHARE; i++)
        many[i] = is_root ? i : 1000;
    EXPECT(pvm_reduce(PvmSum, many, LONG_SHARE, PVM_INT, 8, group, root), 0);
    gathered[0] = ints[0];
    info = pvm_gather(gathered, is_root ? (int[]){1, 2} : (int[]){-3, 4}, 2, PVM_INT, 9, group, root);
    EXPECT(info, 0);
    info = pvm_gather(long_gathered, is_root ? (long[]){1, 2} : (long[]){-3, 4}, 2, PVM_LONG, 10, group, root);
    EXPECT(info, 0);
    if (!is_root)
        return NULL;
    MUST(shorts[0] == -295 && shorts[1] == 14, "shorts %d %d", shorts[0], shorts[1]);
    MUST(ints[0] == 1 << 20 && ints[1] == -1 && ints[2] == 1, "ints %d %d %d", ints[0], ints[1], ints[2]);
    MUST(longs[0] == -69990 && longs[1] == 2, "longs %ld %ld", longs[0], longs[1]);
    MUST(floats[0] == 0.125 && floats[1] == 4, "floats %g %g", floats[0], floats[1]);
    MUST(doubles[0] == 3, "double %g", doubles[0]);
    MUST(complex_number[0] == 2 && complex_number[1] == -2, "complex %g %g", complex_number[0], complex_number[1]);
    MUST(bytes[0] == 1 && bytes[1] == 100 && bytes[2] == -5, "bytes %d %d %d", bytes[0], bytes[1], bytes[2]);
    for (i = 0; i < LONG_SHARE; i++)
        MUST(many[i] == i + 1000, "%d of many is %d", i, many[i]);
    MUST(gathered[0] == 1 && gathered[1] == 2 && gathered[2] == -3 && gathered[3] == 4, "gathered %d %d %d %d",
         gathered[0], gathered[1], gathered[2], gathered[3]);
    MUST(long_gathered[2] == -3 && long_gathered[3] == 4, "gathered %ld %ld", long_gathered[2], long_gathered[3]);
    return NULL;
}

/* The receiver has joined first, so that its instance is 0. */
static const char *reduce_send(const struct cell *cell, int argument)
{
    (void)argument;
    return reduce_as(cell, 0);
}

static const char *reduce_check(const struct cell *cell, int argument)
{
    (void)argument;
    return reduce_as(cell, 1);
}

static const char *scatter_send(const struct cell *cell, int argument)
{
    char *group = group_of(cell);
    long data[4] = {1, 2, -3, 70000}, got[2];
    int root = pvm_getinst(group, pvm_mytid());
    (void)argument;
    EXPECT(pvm_scatter(got, data, 2, PVM_LONG, 11, group, root), 0);
    return NULL;
}

static const char *scatter_check(const struct cell *cell, int argument)
{
    long got[2] = {0, 0};
    char *group = group_of(cell);
    (void)argument;
    EXPECT(pvm_scatter(got, NULL, 2, PVM_LONG, 11, group, 1), 0);
    MUST(got[0] == 1 && got[1] == 2, "%ld %ld", got[0], got[1]);
    return NULL;
}

static const char *large_share_send(const struct cell *cell, int argument)
{
    long data[ITEMS];
    char *group = group_of(cell);
    (void)argument;
    make_large(T_LONG, data, sizeof(long));
    EXPECT(pvm_reduce(PvmMax, data, ITEMS, PVM_LONG, 12, group, 0), 0);
    return NULL;
}

static const char *large_share_check(const struct cell *cell, int argument)
{
    long data[ITEMS], want[ITEMS];
    int i, from_long = kinds[cell->from].long_bytes;
    char *group = group_of(cell);
    (void)argument;
    make_large(T_LONG, want, from_long <= (int)sizeof(long) ? from_long : 4);
    for (i = 0; i < ITEMS; i++)
        data[i] = (long)1 << (8 * sizeof(long) - 1);
    EXPECT(pvm_reduce(PvmMax, data, ITEMS, PVM_LONG, 12, group, 0), from_long > (int)sizeof(long) ? PvmOverflow : 0);
    if (from_long <= (int)sizeof(long))
        EXPECT(memcmp(data, want, sizeof data), 0);
    return NULL;
}

/* Signals to a task on the other host, and queries about it. */
static const char *check_task(const struct cell *cell, int argument)
{
    struct pvmtaskinfo *tasks;
    struct timeval clock, delta;
    int count, i, found = 0;
    (void)argument;
    EXPECT(pvm_pstat(cell->sender), PvmOk);
    WELL(pvm_tasks(pvm_tidtohost(cell->sender), &count, &tasks));
    for (i = 0; i < count; i++)
        found += tasks[i].ti_tid == cell->sender && tasks[i].ti_host == pvm_tidtohost(cell->sender);
    EXPECT(found, 1);
    WELL(pvm_hostsync(pvm_tidtohost(cell->sender), &clock, &delta));
    MUST(delta.tv_sec >= -5 && delta.tv_sec <= 5, "the clocks are %ld s apart", (long)delta.tv_sec);
    return NULL;
}

static const char *check_config(const struct cell *cell, int argument)
{
    struct pvmhostinfo *hosts;
    int count, formats, i, first = 0, own;
    (void)argument;
    EXPECT(pvm_config(&count, &formats, &hosts), 0);
    EXPECT(count, kind_count);
    EXPECT(formats, 3);
    for (i = 0; i < count; i++) {
        if (!first && !strcmp(hosts[i].hi_arch, kinds[cell->from].arch))
            first = hosts[i].hi_dsig;
        if (!strcmp(hosts[i].hi_name, kinds[cell->from].host)) {
            EXPECT(hosts[i].hi_dsig, kinds[cell->from].signature);
            EXPECT(strcmp(hosts[i].hi_arch, kinds[cell->from].arch), 0);
        }
    }
    EXPECT(pvm_archcode((char *)kinds[cell->from].arch), first);
    EXPECT(pvm_archcode("PDP11"), PvmNotFound);
    own = own_kind();
    EXPECT(kinds[own].long_bytes, (int)sizeof(long));
    return NULL;
}

/* ----- Children */

static void trace_child(void)
{
    double real = -2.5;
    long large[2] = {-40000, 1 << 30};
    pvm_pstat(pvm_mytid());
    pvm_initsend(PvmDataTrace);
    pvm_pkdouble(&real, 1, 1);
    pvm_pklong(large, 2, 1);
    pvm_send(PVM_TRACE_TID, PVM_TRACE_CODE);
}

static void hello_child(int count, char **arguments)
{
    int parent = pvm_parent(), i;
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&parent, 1, 1);
    pvm_pkint(&count, 1, 1);
    pvm_pkint((int *)&kinds[own_kind()].signature, 1, 1);
    pvm_pkstr((char *)kinds[own_kind()].label);
    for (i = 2; i < count; i++)
        pvm_pkstr(arguments[i]);
    pvm_send(parent, TAG_CHILD);
}

int child_main(int count, char **arguments)
{
    pvm_mytid();
    if (!strcmp(arguments[1], "sleep")) {
        sleep(PATIENCE);
    } else if (!strcmp(arguments[1], "print")) {
        printf("line 1 %s\nline 2 %s\n", kinds[own_kind()].label, kinds[own_kind()].label);
        fflush(stdout);
        printf("line 3 %s", kinds[own_kind()].label);
        fflush(stdout);
    } else if (!strcmp(arguments[1], "trace")) {
        trace_child();
    } else if (!strcmp(arguments[1], "hello")) {
        hello_child(count, arguments);
    } else {
        return 1;
    }
    pvm_exit();
    return 0;
}

static void make_group_row(const char *name, action share, action check)
{
    make_row(name, 0, -1, (struct step[STEPS_MAX]){{RECEIVER, join}, {SENDER, join}, {SENDER, share}, {RECEIVER, check},
                                                   {SENDER, leave}, {RECEIVER, leave}});
}

void machine_rows(void)
{
    make_pair("mailbox", PvmDataDefault, put_info, get_info);
    make_pair("mailbox, raw", PvmDataRaw, put_info, get_info);
    make_row("insert, lookup", 4711, -1,
             (struct step[STEPS_MAX]){{SENDER, insert}, {RECEIVER, look_up}, {SENDER, delete_number}});
    make_pair("notify", 0, NULL, check_notify);
    make_pair("catchout", 0, NULL, check_catchout);
    make_pair("spawn on host", 0, NULL, check_spawn);
    make_pair("spawn by arch", 1, NULL, check_spawn);
    make_pair("trace", 0, NULL, check_trace);
    make_pair("tasks, pstat, hostsync", 0, NULL, check_task);
    make_pair("config, archcode", 0, NULL, check_config);
    make_group_row("reduce, gather", reduce_send, reduce_check);
    make_group_row("scatter", scatter_send, scatter_check);
    make_group_row("reduce, large long", large_share_send, large_share_check);
}
