/* An operation of a task that is under way when the first daemon is killed.
 *   during add HOST... | spawn | barrier HOST... | put
 * prints `begun` as the operation begins, and `answered` when it has been answered. It reads a line when the host of
 * the first daemon is lost, for all; then it checks what has come of the operation, prints `error TEXT` or `done` with
 * the figures, and ends at the next line. A put and a barrier are many: puts begin until that line, barriers end by
 * themselves.
 *   during lines
 * is a task of `pvm run`, which prints numbered lines.
 */
#include "hosts.h"

/* The tid of the daemon that is killed. */
#define FIRST_HOST 0x40000
/* The seconds after which something hangs. */
#define LIMIT 60.0
#define HOSTS_MAX 16
#define SPAWNED 32
/* The number of barriers while the daemon is killed, and of those afterwards. */
#define BARRIERS 3000
#define BARRIERS_AFTERWARDS 100
/* The most puts, the entries that are not deleted yet, and the bytes of the longest. */
#define PUTS_MAX 100000
#define KEPT 40
#define BYTES_MAX 300000
#define NAME "during"
#define LINES 300
#define LINE_PAUSE_US 3000

enum { HELLO = 1, FINISH, SETUP, REPORT, GONE };

static void error(const char *what, int first, int second, int third)
{
    printf("error %s (%d, %d, %d)\n", what, first, second, third);
    exit(1);
}

static int is_on_first_host(int tid)
{
    return pvm_tidtohost(tid) == FIRST_HOST;
}

static void send_number(int tid, int tag, int number)
{
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&number, 1, 1);
    pvm_send(tid, tag);
}

/* ----- an add */

static void add(int count, char **names)
{
    int infos[HOSTS_MAX] = {0}, added, i;
    printf("begun\n");
    added = pvm_addhosts(names, count, infos);
    printf("answered %d\n", added);
    is_told(-1);
    printf("done");
    for (i = 0; i < count; i++)
        printf(" %s=%d", names[i], added < 0 ? added : infos[i] > 0 ? 1 : infos[i]);
    printf("\n");
}

/* ----- a spawn */

static void child(void)
{
    case_signal(pvm_parent(), HELLO);
    pvm_recv(pvm_parent(), FINISH);
    pvm_exit();
}

static int index_of(const int *tids, int count, int tid)
{
    int i;
    for (i = 0; i < count && tids[i] != tid; i++)
        ;
    return i;
}

static void spawn(void)
{
    int tids[SPAWNED], hellos[SPAWNED + 1] = {0}, ends[SPAWNED + 1] = {0};
    int spawned, living = 0, lost = 0, failed = 0, missing, message, i;
    printf("begun\n");
    spawned = case_spawn("child", SPAWNED, tids);
    printf("answered %d\n", spawned);
    is_told(-1);
    for (i = 0; i < SPAWNED; i++) {
        if (spawned < 0 || tids[i] < 0)
            failed++;
        else if (pvm_notify(PvmTaskExit, GONE, 1, &tids[i]) < 0)
            error("pvm_notify", i, tids[i], 0);
        else if (is_on_first_host(tids[i]))
            lost++;
        else
            living++;
    }
    missing = living + lost;
    if (spawned >= 0 && spawned != SPAWNED - failed)
        error("another number of tasks than of tids", spawned, failed, 0);
    /* What is told twice would be told the second time soon. */
    while ((message = case_receive(-1, -1, missing ? LIMIT : 0.3)) > 0) {
        int tag, from, tid;
        pvm_bufinfo(message, NULL, &tag, &from);
        if (tag == HELLO)
            hellos[index_of(tids, SPAWNED, from)]++;
        if (tag == GONE && pvm_upkint(&tid, 1, 1) == PvmOk)
            ends[index_of(tids, SPAWNED, tid)]++;
        for (missing = i = 0; i < SPAWNED; i++)
            if (spawned >= 0 && tids[i] > 0)
                missing += !(is_on_first_host(tids[i]) ? ends : hellos)[i];
    }
    if (missing)
        error("hang: tasks do not report, or no notify comes", living, lost, missing);
    for (i = 0; i < SPAWNED; i++)
        if (hellos[i] > 1 || ends[i] > 1 || (ends[i] && !is_on_first_host(tids[i])))
            error("reports and ends of a task", i, hellos[i], ends[i]);
    /* A task may report although its tid is lost with the answer of its daemon; then it is on the first host. */
    if (hellos[SPAWNED] > failed || ends[SPAWNED])
        error("a task that is in no answer", hellos[SPAWNED], ends[SPAWNED], failed);
    printf("done living=%d lost=%d failed=%d\n", living, lost, failed);
    is_told(-1);
    for (i = 0; i < SPAWNED; i++)
        if (spawned >= 0 && tids[i] > 0)
            case_signal(tids[i], FINISH);
}

/* ----- barriers over all hosts */

/* Reports how many barriers have opened, and the result of the last one. */
static void pass_barriers(int count, int rounds)
{
    int passed = 0, result = PvmOk;
    while (passed < rounds && (result = pvm_barrier(NAME, count)) == PvmOk)
        passed++;
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&passed, 1, 1);
    pvm_pkint(&result, 1, 1);
    pvm_send(pvm_parent(), REPORT);
}

static void member(void)
{
    int count, parent = pvm_parent();
    send_number(parent, HELLO, pvm_joingroup(NAME));
    pvm_recv(parent, SETUP);
    pvm_upkint(&count, 1, 1);
    pass_barriers(count, BARRIERS);
    pvm_recv(parent, SETUP);
    pvm_upkint(&count, 1, 1);
    pass_barriers(count, BARRIERS_AFTERWARDS);
    pvm_recv(parent, FINISH);
    pvm_exit();
}

/* Receives the reports of the living members, which must be the same. */
static void take_reports(const int *tids, int count, int *passed, int *result)
{
    int i, first = 1, mine, last;
    for (i = 0; i < count; i++) {
        if (is_on_first_host(tids[i]))
            continue;
        if (case_receive(tids[i], REPORT, LIMIT) <= 0)
            error("hang: a member does not report", i, 0, 0);
        pvm_upkint(&mine, 1, 1);
        pvm_upkint(&last, 1, 1);
        if (!first && mine != *passed)
            error("members have passed other numbers of barriers", i, mine, *passed);
        if (!first && last != *result)
            error("members have other results of a barrier", i, last, *result);
        first = 0;
        *passed = mine;
        *result = last;
    }
}

static void barrier(int hosts, char **names)
{
    int tids[HOSTS_MAX], living = 0, passed = 0, result = 0, may_fail, i;
    for (i = 0; i < hosts; i++)
        if ((tids[i] = spawn_on(names[i], "member")) < 0)
            error("cannot spawn a member", i, tids[i], 0);
    for (i = 0; i < hosts; i++) {
        if (received_number(tids[i], HELLO) < 0)
            error("pvm_joingroup", i, 0, 0);
        living += !is_on_first_host(tids[i]);
    }
    may_fail = living < hosts;
    for (i = 0; i < hosts; i++)
        send_number(tids[i], SETUP, hosts);
    printf("begun\n");
    is_told(-1);
    take_reports(tids, hosts, &passed, &result);
    if (result == PvmOk ? passed != BARRIERS : !may_fail || result != PvmNoTask)
        error("barriers", passed, result, may_fail);
    printf("done passed=%d result=%d", passed, result);
    for (i = 0; i < hosts; i++)
        if (!is_on_first_host(tids[i]))
            send_number(tids[i], SETUP, living);
    take_reports(tids, hosts, &passed, &result);
    printf("\n");
    if (passed != BARRIERS_AFTERWARDS)
        error("barriers afterwards", passed, result, living);
    for (i = 0; i < hosts; i++)
        if (!is_on_first_host(tids[i]))
            case_signal(tids[i], FINISH);
}

/* ----- puts into a mailbox */

static char bytes[BYTES_MAX];

static char byte_at(int number, int place)
{
    return (char)(number * 7 + place * 3 + (place >> 8));
}

static int size_of(int number)
{
    return number % 3 ? number * 37 % 2000 : number * 4321 % BYTES_MAX;
}

static int put(int number)
{
    int size = size_of(number), i;
    for (i = 0; i < size; i++)
        bytes[i] = byte_at(number, i);
    pvm_initsend(PvmDataRaw);
    pvm_pkint(&number, 1, 1);
    pvm_pkbyte(bytes, size, 1);
    return pvm_putinfo(NAME, pvm_getsbuf(), PvmMboxMultiInstance);
}

static void get(int number, int index, int flags)
{
    int got, size = size_of(number), i;
    if ((got = pvm_recvinfo(NAME, index, flags)) <= 0)
        error("pvm_recvinfo of an entry", number, index, got);
    pvm_upkint(&got, 1, 1);
    if (got != number || pvm_upkbyte(bytes, size, 1) < 0)
        error("another entry", got, number, index);
    for (i = 0; i < size; i++)
        if (bytes[i] != byte_at(number, i))
            error("wrong content", number, index, i);
}

/* Deletes an entry, sometimes by reading it; twice is once too often. */
static void take(int number, int index)
{
    int result;
    if (number % 2)
        get(number, index, PvmMboxReadAndDelete);
    else if ((result = pvm_delinfo(NAME, index, 0)) < 0)
        error("pvm_delinfo", number, index, result);
    if (number % 5 == 0 && (result = pvm_delinfo(NAME, index, 0)) != PvmNotFound)
        error("an entry is deleted twice", number, index, result);
}

static void puts_and_takes(void)
{
    static int indexes[PUTS_MAX];
    struct pvmmboxinfo *classes;
    int number, first = 0, found, count = 0, i;
    printf("begun\n");
    for (number = 0; number < PUTS_MAX && !is_told(0); number++) {
        if ((indexes[number] = put(number)) < 0)
            error("pvm_putinfo", number, indexes[number], 0);
        if (number - first >= KEPT) {
            take(first, indexes[first]);
            first++;
        }
    }
    if (number == PUTS_MAX)
        is_told(-1);
    if (pvm_getmboxinfo(NAME, &count, &classes) < 0 || count != 1)
        error("pvm_getmboxinfo", count, 0, 0);
    for (i = 0; i < classes[0].mi_nentries; i++) {
        for (found = first; found < number && classes[0].mi_indices[i] != indexes[found]; found++)
            ;
        if (found == number && pvm_recvinfo(NAME, classes[0].mi_indices[i], 0) > 0 && pvm_upkint(&found, 1, 1) == PvmOk)
            error("an entry too many: its number and index, and the index that is right or was", found,
                  classes[0].mi_indices[i], indexes[found]);
    }
    if (classes[0].mi_nentries != number - first)
        error("entries are missing", number - first, classes[0].mi_nentries, 0);
    for (i = first; i < number; i++) {
        get(i, indexes[i], 0);
        take(i, indexes[i]);
    }
    if (pvm_getmboxinfo(NAME, &count, &classes) < 0 || count != 0)
        error("entries are left", count, 0, 0);
    printf("done puts=%d\n", number);
}

/* ----- a task of `pvm run` */

static void lines(void)
{
    char host[100];
    const char *index = getenv("HPVM_TASK_INDEX");
    gethostname(host, sizeof host);
    for (int i = 0; i < LINES; i++) {
        printf("line %s %s %d\n", host, index ? index : "?", i);
        usleep(LINE_PAUSE_US);
    }
}

int main(int argc, char **argv)
{
    const char *operation = argc > 1 ? argv[1] : "";
    case_begin();
    setvbuf(stdin, NULL, _IONBF, 0);
    if (strcmp(operation, "lines") == 0) {
        lines();
        return 0;
    }
    if (pvm_mytid() < 0)
        return 1;
    if (strcmp(operation, "child") == 0) {
        child();
    } else if (strcmp(operation, "member") == 0) {
        member();
    } else {
        if (strcmp(operation, "add") == 0)
            add(argc - 2, argv + 2);
        else if (strcmp(operation, "spawn") == 0)
            spawn();
        else if (strcmp(operation, "barrier") == 0)
            barrier(argc - 2, argv + 2);
        else if (strcmp(operation, "put") == 0)
            puts_and_takes();
        else
            return 2;
        if (strcmp(operation, "spawn") != 0)
            is_told(-1);
        pvm_exit();
    }
    return 0;
}
