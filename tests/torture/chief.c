/* The chief: starts the workers, kills and replaces them, sets the phases, and detects hangs. It exchanges
 * lines with its caller:
 *   out: quiet ROUND PID:KIND:HEAP .. all messages are received, nobody sends; waits for a line. The line
 *                                     "more" means that there is another round, even after the time
 *   out: running                      (lose=1 only) traffic has begun
 *   out: error TEXT                   the run has failed; waits for a line, then kills its tasks
 *   out: total NAME=NUMBER ...        the last line of a run that did not fail
 */
#include "torture.h"

#include <pvm3.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum {
    KILL_INTERVAL_MS = 110,           /* mean */
    SPARE_INCARNATIONS = 8,
    BURST_OF_KILLS = 3,
    NEWBORN_KILLED_PERCENT = 12, LEAVES_PERCENT = 8, BURSTS_PERCENT = 8, ACTS_PERCENT = 34,
    WATCH_FOR_ACTS_NS = 3000000,
    RING_PASSES_A_TASK = 12,
    SETTLE_MS = 800                   /* how long nobody sends before memory is measured */
};

static struct random killing;
static unsigned seconds = 20, round_seconds = 8, lose, kills, leaves, notifies;
static char program[4096], table_path[4096];
static char hosts[4096];              /* the workers' hosts, separated by commas; empty: anywhere */
static int closing;                   /* from now on workers end by themselves */

static _Noreturn void give_up(const char *format, ...)
{
    char text[4000];
    unsigned incarnation;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    printf("error %s\n", text);
    if (fgets(text, sizeof text, stdin) == NULL) /* the caller may want to examine the processes */
        text[0] = 0;
    for (incarnation = 1; incarnation < table->incarnations; incarnation++)
        if (!table->logs[incarnation].dead && table->logs[incarnation].pid != 0)
            kill((pid_t)table->logs[incarnation].pid, SIGKILL);
    exit(1);
}

static struct log *at_position(unsigned position)
{
    return &table->logs[table->current[position]];
}

/* ---- Starting and killing tasks ---- */

/* Returns the host on which the tasks of a position run. */
static const char *home_of(unsigned position)
{
    static char name[256];
    const char *place = hosts, *comma;
    unsigned count = 1, turn;
    for (comma = hosts; (comma = strchr(comma, ',')) != NULL; comma++)
        count++;
    for (turn = position % count; turn > 0; turn--)
        place = strchr(place, ',') + 1;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(place, ","), place);
    return name;
}

/* Starts one task at `position`; if that is -1, one task at each position. */
static void start_tasks(int position)
{
    unsigned count = position < 0 ? table->tasks : 1, first = table->incarnations, index;
    char number[12] = "-", *arguments[] = {"worker", table_path, number, NULL};
    int tids[POSITIONS_MAX], started;
    if (position >= 0)
        snprintf(number, sizeof number, "%u", first);
    for (index = 0; index < count; index++)
        table->logs[first + index].position = position < 0 ? index : (unsigned)position;
    table->incarnations = first + count;
    doing("pvm_spawn of %u", count);
    started = pvm_spawn(program, arguments, hosts[0] ? PvmTaskHost : PvmTaskDefault,
                        hosts[0] ? (char *)home_of((unsigned)position) : NULL, (int)count, tids);
    if (started < 0)
        failed_call("pvm_spawn", started);
    if (started < (int)count)
        give_up("pvm_spawn started %d of %u, the first failure is %d", started, count, tids[started]);
    for (index = 0; index < count; index++) {
        table->logs[first + index].tid = (unsigned)tids[index];
        table->current[table->logs[first + index].position] = first + index;
    }
    doing("pvm_notify of %u", count);
    if ((started = pvm_notify(PvmTaskExit, TAG_EXIT, (int)count, tids)) < 0)
        failed_call("pvm_notify", started);
    done_doing();
}

static void kill_task(unsigned incarnation)
{
    struct log *log = &table->logs[incarnation];
    if (log->fate != LIVES || log->pid == 0)
        return;
    log->fate = TO_BE_KILLED;
    kills++;
    kill((pid_t)log->pid, SIGKILL);
}

/* Waits a short time for a task that is in the middle of a long psend or of a precv, and kills it. */
static void kill_in_the_act(void)
{
    uint64_t start = now_ns();
    unsigned position, first = below(&killing, table->tasks - table->immortals);
    while (now_ns() - start < WATCH_FOR_ACTS_NS) {
        for (position = 0; position < table->tasks - table->immortals; position++) {
            struct log *log = at_position(table->immortals + (first + position) % (table->tasks - table->immortals));
            if (log->blind == BLIND_IN_PRECV || strncmp(log->doing, "psend of ", 9) == 0) {
                kill_task((unsigned)(log - table->logs));
                return;
            }
        }
    }
}

static void kill_newborn(unsigned incarnation)
{
    uint64_t start = now_ns();
    while (table->logs[incarnation].pid == 0 && now_ns() - start < 50000000)
        usleep(20);
    usleep(below(&killing, 3000));
    kill_task(incarnation);
}

static void replace(unsigned dead)
{
    if (closing || table->incarnations + SPARE_INCARNATIONS > INCARNATIONS_MAX)
        return;
    start_tasks((int)table->logs[dead].position);
    if (table->phase % PHASES == RUN && below(&killing, 100) < NEWBORN_KILLED_PERCENT)
        kill_newborn(table->incarnations - 1);
}

static void take_exit(int buffer)
{
    int tid, tag, source;
    unsigned dead = table->incarnations;
    struct log *log;
    pvm_bufinfo(buffer, NULL, &tag, &source);
    if (is_stranger(source))
        return;
    if (tag != TAG_EXIT || source != (int)0x80000000 || pvm_upkint(&tid, 1, 1) < 0)
        give_up("the chief got a message with tag %d from t%x", tag, (unsigned)source);
    while (--dead > 0 && (int)table->logs[dead].tid != tid)
        ;
    log = &table->logs[dead];
    notifies++;
    if (dead == 0 || log->dead)
        give_up("the chief got the exit notify of t%x %s", (unsigned)tid, dead == 0 ? "unasked" : "twice");
    log->dead = 1;
    if (log->state == FAILED)
        give_up("task %u: %s", dead, log->error);
    if (log->fate == LIVES && log->state != STOPPED)
        give_up("task %u died by itself, in state %u, doing: %s", dead, (unsigned)log->state, log->doing);
    if (log->fate == TO_LEAVE)
        leaves++;
    replace(dead);
}

static void listen_for(unsigned milliseconds)
{
    struct timeval time = {milliseconds / 1000, milliseconds % 1000 * 1000};
    int buffer;
    doing("trecv of %u ms", milliseconds);
    buffer = pvm_trecv(-1, -1, &time);
    done_doing();
    if (buffer < 0)
        failed_call("pvm_trecv", buffer);
    if (buffer > 0)
        take_exit(buffer);
}

/* ---- Checks during every wait ---- */

/* Sends a message to every task; it ends receives that wait for any sender. */
static void tick(void)
{
    unsigned position;
    for (position = 0; position < table->tasks; position++)
        send_message(&killing, PSEND, (unsigned[]){table->current[position]}, 1, 8, (struct note){0, 0});
}

static void explain_task(const struct log *log, char *text, unsigned room)
{
    unsigned number = (unsigned)(log - table->logs), used;
    used = (unsigned)snprintf(text, room, "task %u (pid %u) in state %u, doing: %s;", number, (unsigned)log->pid,
                              (unsigned)log->state, log->doing);
    me = number;
    mine = &table->logs[me];
    explain_missing(text + used, room - used);
    me = 0;
    mine = table->logs;
}

static void look_for_failures(void)
{
    static unsigned loops[POSITIONS_MAX], incarnations[POSITIONS_MAX];
    static uint64_t since[POSITIONS_MAX];
    char text[2000];
    unsigned position;
    for (position = 0; position < table->tasks; position++) {
        struct log *log = at_position(position);
        if (log->state == FAILED)
            give_up("task %u: %s", table->current[position], log->error);
        if (loops[position] != log->loops || incarnations[position] != table->current[position] ||
            table->phase % PHASES != RUN) {
            loops[position] = log->loops;
            incarnations[position] = table->current[position];
            since[position] = now_ns();
        } else if (now_ns() - since[position] > table->patience * 1000000000ull) {
            explain_task(log, text, sizeof text);
            give_up("hang: %s", text);
        }
    }
}

/* Waits until every task has reached `state` in this round, and the notify of each killed task has
 * arrived. */
static void wait_for_all(enum state state, const char *what)
{
    uint64_t start = now_ns();
    for (;;) {
        unsigned position, ready = 0;
        struct log *late = NULL;
        for (position = 0; position < table->tasks; position++) {
            struct log *log = at_position(position);
            if (log->fate == LIVES && log->state >= (unsigned)state && log->round == table->phase / PHASES)
                ready++;
            else
                late = log;
        }
        if (ready == table->tasks)
            return;
        look_for_failures();
        if (now_ns() - start > table->patience * 1000000000ull) {
            char text[2000];
            explain_task(late, text, sizeof text);
            give_up("hang while %s: %u of %u tasks are there; %s", what, ready, table->tasks, text);
        }
        listen_for(5);
    }
}

/* ---- Phases ---- */

static void ring(unsigned round)
{
    uint64_t start = now_ns();
    unsigned first = table->current[below(&killing, table->tasks)];
    table->phase = round * PHASES + RING;
    wait_for_all(RINGING, "the ring forms");
    usleep(20000);
    send_message(&killing, round % 2 == 0 ? PSEND : PACK, &first, 1, 10,
                 (struct note){FLAG_TOKEN, table->tasks * RING_PASSES_A_TASK});
    while (table->ring_over != round) {
        look_for_failures();
        if (now_ns() - start > table->patience * 1000000000ull) {
            unsigned position;
            char text[2000] = "nobody";
            for (position = 0; position < table->tasks; position++) {
                explain_task(at_position(position), text, sizeof text);
                if (strstr(text, "received;") != NULL)
                    break;
            }
            give_up("hang: the token of the ring does not come round; %s", text);
        }
        listen_for(5);
    }
}

static void kill_somebody(void)
{
    unsigned mortals = table->tasks - table->immortals, roll = below(&killing, 100), count;
    unsigned victim = table->current[table->immortals + below(&killing, mortals)];
    if (roll < LEAVES_PERCENT && table->logs[victim].fate == LIVES) {
        table->logs[victim].fate = TO_LEAVE;
    } else if (roll < LEAVES_PERCENT + BURSTS_PERCENT) {
        for (count = 0; count < BURST_OF_KILLS; count++)
            kill_task(table->current[table->immortals + below(&killing, mortals)]);
    } else if (roll < LEAVES_PERCENT + BURSTS_PERCENT + ACTS_PERCENT) {
        kill_in_the_act();
    } else {
        kill_task(victim);
    }
}

static void run(unsigned round)
{
    uint64_t start = now_ns(), next_kill = start + 500000000, next_tick = start, told = 0;
    uint64_t tick_interval = table->patience * 100000000ull;
    table->phase = round * PHASES + RUN;
    while (lose || now_ns() - start < round_seconds * 1000000000ull) {
        look_for_failures();
        if (now_ns() >= next_tick) {
            tick();
            next_tick = now_ns() + tick_interval;
        }
        if (now_ns() >= next_kill && table->tasks > table->immortals) {
            kill_somebody();
            next_kill = now_ns() + (uint64_t)below(&killing, 2 * KILL_INTERVAL_MS * 1000) * 1000;
        }
        if (lose && !told && now_ns() - start > 1500000000) {
            told = 1;
            printf("running\n");
        }
        listen_for(below(&killing, 10) + 1);
    }
    tick();
    wait_for_all(RUNNING, "the dead are replaced");
    table->phase = round * PHASES + QUIET;
    tick();
    wait_for_all(DRAINED, "everything is received");
}

/* Reports to the caller. Returns whether there must be another round, even if the time is over. */
static int report_quiet(unsigned round)
{
    char line[200];
    unsigned position, wait;
    for (wait = 0; wait < SETTLE_MS / 10; wait++)
        listen_for(10);
    printf("quiet %u %d:chief:0", round, (int)getpid());
    for (position = 0; position < table->tasks; position++)
        printf(" %u:%s:%llu", (unsigned)at_position(position)->pid, position < table->immortals ? "immortal" : "mortal",
               (unsigned long long)at_position(position)->heap_bytes);
    printf("\n");
    while (fgets(line, sizeof line, stdin) == NULL)
        exit(5); /* the caller has ended */
    return strcmp(line, "more\n") == 0;
}

/* ---- The end ---- */

/* Compares the counters of every sender with those of every survivor. */
static unsigned compare_all(void)
{
    unsigned position, other, class, pairs = 0;
    for (position = 0; position < table->tasks; position++) {
        unsigned number = table->current[position];
        for (other = 0; other < table->incarnations; other++) {
            const struct log *from = &table->logs[other];
            for (class = 0; class < CLASSES && other != number; class++) {
                unsigned sent = from->sent[number][class], begun = from->begun[number][class];
                unsigned received = table->logs[number].received[other][class];
                if (received < sent || received > begun)
                    give_up("task %u received %u messages of class %u from task %u, which sent %u (began %u)", number,
                            received, class, other, sent, begun);
                pairs += begun > 0;
            }
        }
    }
    return pairs;
}

static void stop(unsigned round)
{
    uint64_t start = now_ns();
    unsigned position, living = table->tasks;
    closing = 1;
    table->phase = round * PHASES + STOP;
    while (living > 0) {
        listen_for(20);
        for (living = 0, position = 0; position < table->tasks; position++)
            living += !at_position(position)->dead;
        if (now_ns() - start > table->patience * 1000000000ull)
            give_up("hang: %u tasks did not end", living);
    }
    listen_for(300); /* one notify too many would arrive now */
    if (notifies != table->incarnations - 1)
        give_up("%u exit notifies for %u tasks", notifies, table->incarnations - 1);
}

static void print_total(unsigned rounds)
{
    unsigned long long sent = 0, received = 0, bytes_sent = 0, bytes_received = 0, longest = 0, heard = 0;
    unsigned number, other;
    for (number = 0; number < table->incarnations; number++) {
        const struct log *log = &table->logs[number];
        sent += log->messages_sent;
        received += log->messages_received;
        bytes_sent += log->bytes_sent;
        bytes_received += log->bytes_received;
        longest = log->wait_longest_ns > longest ? log->wait_longest_ns : longest;
        for (other = 0; other < table->incarnations; other++)
            heard += log->notified[other];
    }
    printf("total rounds=%u tasks=%u incarnations=%u kills=%u leaves=%u sent=%llu received=%llu bytes_sent=%llu "
           "bytes_received=%llu notifies=%llu pairs=%u longest_us=%llu\n",
           rounds, table->tasks, table->incarnations - 1, kills, leaves, sent, received, bytes_sent, bytes_received,
           heard + notifies, compare_all(), longest / 1000);
}

static void parse(int argc, char **argv)
{
    unsigned *number = NULL;
    table->tasks = 8;
    table->patience = 30;
    table->seed = 1;
    while (argc-- > 0) {
        char *value = strchr(*argv, '=');
        if (value == NULL)
            exit(2);
        *value++ = 0;
        number = strcmp(*argv, "seconds") == 0    ? &seconds
                 : strcmp(*argv, "round") == 0    ? &round_seconds
                 : strcmp(*argv, "tasks") == 0    ? &table->tasks
                 : strcmp(*argv, "patience") == 0 ? &table->patience
                 : strcmp(*argv, "immortals") == 0 ? &table->immortals
                 : strcmp(*argv, "lose") == 0     ? &lose
                 : strcmp(*argv, "strangers") == 0 ? &table->strangers
                                                  : NULL;
        if (number != NULL)
            *number = (unsigned)atoi(value);
        else if (strcmp(*argv, "seed") == 0)
            table->seed = strtoull(value, NULL, 10);
        else if (strcmp(*argv, "hosts") == 0)
            snprintf(hosts, sizeof hosts, "%s", value);
        else if (strcmp(*argv, "mutate") == 0)
            snprintf(table->mutation, sizeof table->mutation, "%s", value);
        else
            exit(2);
        argv++;
    }
    if (table->tasks < 2 || table->tasks > POSITIONS_MAX)
        exit(2);
}

int lead(int argc, char **argv)
{
    uint64_t start = now_ns();
    unsigned round = 0;
    int more;
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    int tid;
    mine = table->logs;
    table->immortals = 2;
    parse(argc, argv);
    setvbuf(stdout, NULL, _IOLBF, 0);
    snprintf(table_path, sizeof table_path, "%s", argv[-1]);
    table->may_lose_daemon = lose;
    table->incarnations = 1;
    killing.state = mix(table->seed, 1u << 31);
    messages_start();
    tid = pvm_mytid();
    if (length < 0 || tid < 0)
        give_up("pvm_mytid gave %d", tid);
    mine->pid = (unsigned)getpid();
    mine->tid = mine->own_tid = (unsigned)tid;
    if (hosts[0] == 0)
        start_tasks(-1);
    while (hosts[0] != 0 && table->incarnations <= table->tasks)
        start_tasks((int)table->incarnations - 1);
    do {
        round++;
        ring(round);
        run(round);
        more = report_quiet(round);
    } while (more || now_ns() - start < seconds * 1000000000ull || round < 2);
    stop(round);
    print_total(round);
    pvm_exit();
    return 0;
}
