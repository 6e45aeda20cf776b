/* A program that loses tasks and hosts and goes on. It spawns a worker on each host of the job but its own, and wants to
 * be told of their ends.
 *
 * survivor loss: the workers go on when a host is lost.
 * survivor HOST:MIB: the worker on HOST takes that much memory. */
#include <pvm3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GO = 1, ANSWER, TASK_GONE, HOST_GONE, WORKERS_MAX = 8 };

static int work(const char *meal)
{
    char name[256];
    const char *colon = strchr(meal, ':');

    gethostname(name, sizeof name);
    pvm_recv(pvm_parent(), GO);
    if (colon && strncmp(name, meal, colon - meal) == 0 && name[colon - meal] == 0) {
        size_t bytes = strtoul(colon + 1, NULL, 10) << 20, i;
        volatile char *memory = malloc(bytes);

        for (i = 0; i < bytes; i += 4096)
            memory[i] = 1;
    }
    pvm_initsend(PvmDataDefault);
    pvm_send(pvm_parent(), ANSWER);
    pvm_exit();
    return 0;
}

/* Returns the place of the worker that the message, or its content, is about. */
static int place_of(int tid, const int *tids, int workers)
{
    int i = 0;

    while (i < workers && tids[i] != tid)
        i++;
    return i;
}

int main(int argc, char **argv)
{
    struct pvmhostinfo *hosts;
    const char *mode = argc > 1 ? argv[1] : "loss";
    char *words[] = { "worker", (char *)mode, NULL };
    int tids[WORKERS_MAX + 1], has_ended[WORKERS_MAX + 1] = { 0 };
    int count, formats, i, workers = 0, answers = 0, lost = 0, own = pvm_tidtohost(pvm_mytid());

    if (argc > 2 && strcmp(argv[1], "worker") == 0)
        return work(argv[2]);
    pvm_config(&count, &formats, &hosts);
    for (i = 0; i < count && workers < WORKERS_MAX; i++) {
        /* In a job of `salloc`, the first daemon is on the host of the controller. */
        if (hosts[i].hi_tid == own || strcmp(hosts[i].hi_name, "alfa") == 0)
            continue;
        if (pvm_spawn("survivor", words, PvmTaskHost, hosts[i].hi_name, 1, &tids[workers]) != 1)
            return 1;
        pvm_notify(PvmTaskExit, TASK_GONE, 1, &tids[workers]);
        pvm_notify(PvmHostDelete, HOST_GONE, 1, &hosts[i].hi_tid);
        workers++;
    }
    printf("%d workers wait\n", workers);
    fflush(stdout);
    if (strcmp(mode, "loss") == 0) {
        pvm_recv(-1, HOST_GONE);
        printf("a host is gone\n");
    }
    pvm_initsend(PvmDataDefault);
    pvm_mcast(tids, workers, GO);
    while (answers + lost < workers) {
        int bytes, tag, tid;

        pvm_bufinfo(pvm_recv(-1, -1), &bytes, &tag, &tid);
        if (tag == TASK_GONE)
            pvm_upkint(&tid, 1, 1);
        i = place_of(tid, tids, workers);
        /* A worker that has answered ends too. */
        if ((tag == ANSWER || tag == TASK_GONE) && !has_ended[i]) {
            has_ended[i] = 1;
            answers += tag == ANSWER;
            lost += tag == TASK_GONE;
        }
    }
    printf("%d answered, %d lost\n", answers, lost);
    pvm_exit();
    return 0;
}
