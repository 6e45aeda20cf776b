/* How much memory tasks of a PVM and their daemon use. Compiled once, run on every libpvm3 through LD_LIBRARY_PATH.
 *
 *   pvm_memory TASKS default|direct
 *
 * The master spawns the tasks. Up to TALK_MAX tasks send a message to each other; more only answer the master. Then one
 * task after the other reports its resident memory, while all others wait in pvm_recv.
 */
#include "memory.h"
#include "pvm_forms.h"

#define TASKS_MAX 4096
/* The most tasks that all communicate with each other. */
#define TALK_MAX 32
#define TALK_BYTES 8

static int tids[TASKS_MAX];

static void talk(int rank, int tasks)
{
    char bytes[TALK_BYTES] = {0};
    for (int other = 0; other < tasks; other++)
        if (other != rank)
            send_form(RAW_BYTE, tids[other], TAG_DATA, bytes, TALK_BYTES);
    for (int other = 0; other < tasks; other++)
        if (other != rank)
            receive_form(RAW_BYTE, tids[other], TAG_DATA, bytes, TALK_BYTES);
}

static void worker(void)
{
    int parent = must(pvm_parent(), "pvm_parent"), rank, tasks, route, runner;
    must(pvm_recv(parent, TAG_SETUP), "pvm_recv");
    pvm_upkint(&rank, 1, 1);
    pvm_upkint(&tasks, 1, 1);
    pvm_upkint(&route, 1, 1);
    pvm_upkint(&runner, 1, 1);
    must(pvm_upkint(tids, tasks, 1), "pvm_upkint");
    pvm_setopt(PvmRoute, route);
    if (tasks <= TALK_MAX)
        talk(rank, tasks);
    send_form(RAW_BYTE, parent, TAG_READY, NULL, 0);
    receive_form(RAW_BYTE, parent, TAG_ORDER, NULL, 0);
    struct resident own = resident_of(getpid());
    double numbers[] = {own.all, own.alone, rank == 0 ? resident_of_ancestors(runner) : 0};
    send_form(RAW_DOUBLE, parent, TAG_ANSWER, (char *)numbers, sizeof numbers);
    receive_form(RAW_BYTE, parent, TAG_END, NULL, 0);
    pvm_exit();
}

static void master(char *program, int tasks, int route)
{
    char *arguments[] = {"worker", NULL};
    int runner = runner_of_benchmark();
    must(pvm_mytid(), "pvm_mytid");
    pvm_setopt(PvmRoute, route);
    int started = must(pvm_spawn(program, arguments, PvmTaskDefault, NULL, tasks, tids), "pvm_spawn");
    if (started != tasks) {
        fprintf(stderr, "bench: pvm_spawn started %d of %d (%d)\n", started, tasks, tids[tasks - 1]);
        exit(1);
    }
    for (int rank = 0; rank < tasks; rank++) {
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&rank, 1, 1);
        pvm_pkint(&tasks, 1, 1);
        pvm_pkint(&route, 1, 1);
        pvm_pkint(&runner, 1, 1);
        pvm_pkint(tids, tasks, 1);
        must(pvm_send(tids[rank], TAG_SETUP), "pvm_send");
    }
    for (int rank = 0; rank < tasks; rank++)
        receive_form(RAW_BYTE, tids[rank], TAG_READY, NULL, 0);
    for (int rank = 0; rank < tasks; rank++) {
        double numbers[3];
        send_form(RAW_BYTE, tids[rank], TAG_ORDER, NULL, 0);
        receive_form(RAW_DOUBLE, tids[rank], TAG_ANSWER, (char *)numbers, sizeof numbers);
        report("memory_task", tasks, numbers[0], "KiB");
        report("memory_alone", tasks, numbers[1], "KiB");
        if (rank == 0)
            report("memory_daemon", tasks, numbers[2], "KiB");
    }
    must(pvm_notify(PvmTaskExit, TAG_END, tasks, tids), "pvm_notify");
    for (int rank = 0; rank < tasks; rank++)
        send_form(RAW_BYTE, tids[rank], TAG_END, NULL, 0);
    for (int rank = 0; rank < tasks; rank++)
        must(pvm_recv(-1, TAG_END), "pvm_recv");
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "worker") == 0) {
        worker();
        return 0;
    }
    char program[4096];
    int tasks = argc == 3 ? atoi(argv[1]) : 0;
    if (tasks < 1 || tasks > TASKS_MAX || !realpath(argv[0], program))
        fail("usage: pvm_memory TASKS default|direct, with the program's path and 1 to 4096 tasks");
    master(program, tasks, strcmp(argv[2], "direct") == 0 ? PvmRouteDirect : PvmAllowDirect);
    pvm_exit();
    return 0;
}
