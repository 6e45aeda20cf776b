/* The tasks of `pvm bench`.
 *
 *   pvmbench             the director, which `pvm bench` starts: it reads commands from standard input, one a line, and
 *                        writes its answers to standard output. It enrolls, starts the members of a crew by pvm_spawn,
 *                        and tells them what to do. If it is on one of the crew's hosts, it is the crew's first member.
 *   pvmbench member      a member of a crew
 *   pvmbench newborn     a task of the measure `spawn`: it enrolls, reports that, and ends
 *
 * Commands, and their answers:
 *
 *   crew JOINS PINS ROUTE HOST...    starts a crew with one member on each HOST. JOINS is 1 if the director is the
 *                                    first member; then the first HOST is its own. Answer: `crew TID...`
 *   measure WORK ENCODING SIZE REPETITION_US REPETITIONS
 *                                    Answer: `value US` for each repetition, then `done`
 *   spawn TASKS HOSTS REPETITIONS    the same, for the start of TASKS tasks on the list HOSTS
 *   dismiss                          ends the crew. Answer: `done`
 *
 * The director's first line is `tid TID`. A line `error TEXT` is its last one. It ends at the end of its input. It
 * waits for nothing but messages: `pvm bench` notices if a member has ended, and ends the others.
 */
#include "pvmbench.h"
#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>

/* The most tasks of a crew; `pvm bench` demands no more. */
#define TASKS_MAX 1024

/* ---- orders ---- */

/* Executes an order with all other members. Returns the time in us since all were ready; the caller is rank 0. */
static double lead(struct order order)
{
    prepare(order);
    for (int rank = 1; rank < crew.count; rank++)
        receive_data(RAW, crew.tids[rank], TAG_READY, room.data, 0);
    double start = now_us();
    perform(order);
    return now_us() - start;
}

static void member(void)
{
    int setup[4], director = good(pvm_parent(), "pvm_parent");
    receive_ints(director, TAG_SETUP, setup, 4);
    crew.director = director;
    crew.rank = setup[0];
    crew.count = setup[1];
    crew.tids = calloc(crew.count, sizeof *crew.tids);
    good(pvm_upkint(crew.tids, crew.count, 1), "pvm_upkint");
    pvm_setopt(PvmRoute, setup[2]);
    if (setup[3])
        use_core(crew.rank);
    for (;;) {
        struct order order;
        receive_ints(director, TAG_ORDER, (int *)&order, ORDER_INTS);
        if (order.work == END)
            break;
        if (order.verify) {
            prepare(order);
            double since = now_us();
            if (crew.rank != 0)
                send_data(RAW, crew.tids[0], TAG_READY, room.data, 0);
            for (int rank = 1; crew.rank == 0 && rank < crew.count; rank++)
                receive_data(RAW, crew.tids[rank], TAG_READY, room.data, 0);
            int verdict = verify(order, since);
            send_ints(director, TAG_VERDICT, &verdict, 1);
        } else if (crew.rank == 0) {
            double elapsed = lead(order);
            good(pvm_initsend(PvmDataDefault), "pvm_initsend");
            good(pvm_pkdouble(&elapsed, 1, 1), "pvm_pkdouble");
            good(pvm_send(director, TAG_RESULT), "pvm_send");
        } else {
            prepare(order);
            send_data(RAW, crew.tids[0], TAG_READY, room.data, 0);
            perform(order);
        }
    }
    pvm_exit();
}

static void newborn(void)
{
    int parent = good(pvm_parent(), "pvm_parent");
    good(pvm_initsend(PvmDataRaw), "pvm_initsend");
    good(pvm_send(parent, TAG_READY), "pvm_send");
    pvm_exit();
}

/* ---- director ---- */

static char *program;

/* Starts tasks. The other hosts may have this program elsewhere, in a directory where they look for programs. */
static void spawn(char *role, char *place, int count, int *tids)
{
    char *arguments[] = {role, NULL};
    int started = pvm_spawn(program, arguments, PvmTaskHost, place, count, tids);
    if (started == 0 && tids[0] == PvmNoFile)
        started = pvm_spawn("pvmbench", arguments, PvmTaskHost, place, count, tids);
    if (started == count)
        return;
    int code = started < 0 ? started : tids[count - 1];
    if (code == PvmNoFile)
        stop("there is no %s on host %s, nor a pvmbench where that host looks for programs to spawn (ep=); install the "
             "same version of hpvm there", program, place);
    stop("cannot start a task on host %s: %s", place, text_of(code));
}

static void give(struct order order)
{
    for (int rank = 0; rank < crew.count; rank++)
        if (rank != crew.rank)
            send_ints(crew.tids[rank], TAG_ORDER, (int *)&order, ORDER_INTS);
}

/* Has the crew execute an order. Returns the time in us. */
static double timed(struct order order)
{
    double elapsed;
    give(order);
    if (crew.rank == 0)
        return lead(order);
    good(pvm_recv(crew.tids[0], TAG_RESULT), "pvm_recv");
    good(pvm_upkdouble(&elapsed, 1, 1), "pvm_upkdouble");
    return elapsed;
}

static void prove(struct order order)
{
    order.verify = order.count = 1;
    give(order);
    if (crew.rank == 0) {
        prepare(order);
        for (int rank = 1; rank < crew.count; rank++)
            receive_data(RAW, crew.tids[rank], TAG_READY, room.data, 0);
    }
    for (int rank = 0; rank < crew.count; rank++) {
        int verdict;
        if (rank == crew.rank)
            verdict = verify(order, now_us());
        else
            receive_ints(crew.tids[rank], TAG_VERDICT, &verdict, 1);
        if (verdict >= 0 && order.work == BARRIER)
            stop("barrier: task t%x has passed it before all had arrived", crew.tids[rank]);
        if (verdict >= 0)
            stop("%s of %d bytes: wrong data at byte %d, received by task t%x", work_names[order.work], order.size,
                 verdict, crew.tids[rank]);
    }
}

/* Returns the count that is wanted, but at most this factor more or less than before: a single time may be wrong. */
static int next_count(int before, int wanted)
{
    const int factor = 8;
    if (wanted / factor > before)
        return before * factor;
    if (wanted < before / factor)
        return before / factor;
    return wanted < 1 ? 1 : wanted;
}

/* Verifies the order once, warms up, and then repeats it; reports the time of one exchange in us. Each repetition has
 * as many exchanges as the time of the one before suggests. */
static void measure(struct order order, struct effort effort)
{
    if (order.work > RATE && order.work != MCAST && !crew.is_in_group) {
        timed((struct order){JOIN, RAW, 0, 1, 0});
        crew.is_in_group = 1;
    }
    prove(order);
    order.count = 1;
    double elapsed = timed(order);
    while (elapsed < effort.repetition_us / 4 && order.count < EXCHANGES_MAX) {
        order.count = next_count(order.count, exchanges_for(effort, elapsed, order.count) / 2);
        elapsed = timed(order);
    }
    for (int i = 0; i < effort.repetitions; i++) {
        order.count = next_count(order.count, exchanges_for(effort, elapsed, order.count));
        elapsed = timed(order);
        double exchange_us = elapsed / order.count;
        /* Half of the way there and back; the time of one message in a window. */
        if (order.work == LATENCY)
            exchange_us /= 2;
        else if (order.work <= RATE)
            exchange_us /= window_of(order.size);
        printf("value %.9g\n", exchange_us);
        fflush(stdout);
    }
    puts("done");
}

/* Starts tasks several times: the time until all have reported. */
static void measure_spawn(int count, char *place, int repetitions)
{
    int *tids = calloc(count, sizeof *tids);
    for (int i = -1; i < repetitions; i++) {
        double start = now_us();
        spawn("newborn", place, count, tids);
        for (int k = 0; k < count; k++)
            good(pvm_recv(-1, TAG_READY), "pvm_recv");
        double elapsed = now_us() - start;
        good(pvm_notify(PvmTaskExit, TAG_END, count, tids), "pvm_notify");
        for (int k = 0; k < count; k++)
            good(pvm_recv(-1, TAG_END), "pvm_recv");
        if (i >= 0)
            printf("value %.9g\n", elapsed);
        fflush(stdout);
    }
    free(tids);
    puts("done");
}

static void start_crew(int joins, int pins, int route, char *hosts)
{
    char *names[TASKS_MAX], *rest = NULL;
    int count = 0;
    for (char *name = strtok_r(hosts, " ", &rest); name && count < COUNT_OF(names); name = strtok_r(NULL, " ", &rest))
        names[count++] = name;
    crew.count = count;
    crew.rank = joins ? 0 : -1;
    crew.tids = calloc(count, sizeof *crew.tids);
    crew.is_in_group = 0;
    crew.tids[0] = crew.director;
    for (int rank = joins; rank < count; rank++)
        spawn("member", names[rank], 1, crew.tids + rank);
    good(pvm_notify(PvmTaskExit, TAG_END, count - joins, crew.tids + joins), "pvm_notify");
    pvm_setopt(PvmRoute, route);
    for (int rank = joins; rank < count; rank++) {
        int setup[4] = {rank, count, route, pins};
        good(pvm_initsend(PvmDataDefault), "pvm_initsend");
        good(pvm_pkint(setup, 4, 1), "pvm_pkint");
        good(pvm_pkint(crew.tids, count, 1), "pvm_pkint");
        good(pvm_send(crew.tids[rank], TAG_SETUP), "pvm_send");
    }
    use_core(pins && joins ? 0 : -1);
    fputs("crew", stdout);
    for (int rank = 0; rank < count; rank++)
        printf(" %d", crew.tids[rank]);
    putchar('\n');
}

/* Ends the crew, and waits until the daemon has reported the ends. */
static void dismiss(void)
{
    give((struct order){END, RAW, 0, 0, 0});
    for (int rank = 0; rank < crew.count; rank++)
        if (rank != crew.rank)
            good(pvm_recv(-1, TAG_END), "pvm_recv");
    if (crew.is_in_group && crew.rank == 0)
        good(pvm_lvgroup(crew.group), "pvm_lvgroup");
    free(crew.tids);
    crew.tids = NULL;
    crew.rank = -1;
    crew.count = 0;
    puts("done");
}

static int number_of(const char *name, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    stop("unknown word: %s", name);
    return 0;
}

static void obey(char *line)
{
    char work[32], encoding[32];
    static char place[LINE_BYTES_MAX];
    int first, second, third, start = 0;
    struct effort effort;
    if (sscanf(line, "crew %d %d %d %n", &first, &second, &third, &start) == 3 && start > 0)
        start_crew(first, second, third, line + start);
    else if (sscanf(line, "measure %31s %31s %d %lf %d", work, encoding, &first, &effort.repetition_us,
                    &effort.repetitions) == 5)
        measure((struct order){number_of(work, work_names, WORK_COUNT),
                               number_of(encoding, encoding_names, ENCODING_COUNT), first, 0, 0}, effort);
    else if (sscanf(line, "spawn %d %1048575s %d", &first, place, &second) == 3)
        measure_spawn(first, place, second);
    else if (strcmp(line, "dismiss") == 0)
        dismiss();
    else
        stop("unknown command: %s", line);
    fflush(stdout);
}

static void direct(void)
{
    static char line[LINE_BYTES_MAX];
    crew.director = good(pvm_mytid(), "pvm_mytid");
    printf("tid %d\n", crew.director);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        obey(line);
    }
    pvm_exit();
}

int main(int argc, char **argv)
{
    /* This program reports its errors itself. */
    pvm_setopt(PvmAutoErr, 0);
    if (argc == 2 && strcmp(argv[1], "member") == 0) {
        member();
    } else if (argc == 2 && strcmp(argv[1], "newborn") == 0) {
        newborn();
    } else if (argc == 1 && !isatty(0)) {
        /* The director ends with `pvm bench`. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        program = realpath("/proc/self/exe", NULL);
        if (!program)
            stop("/proc/self/exe: %s", strerror(errno));
        direct();
    } else {
        fputs("pvmbench: the tasks of `pvm bench`, which starts them\n", stderr);
        return 2;
    }
    return 0;
}
