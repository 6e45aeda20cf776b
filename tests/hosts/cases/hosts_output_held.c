/* A collector on another host that receives nothing for a while delays the task that prints;
 * nothing is lost. */
//@ ours-only PVM lets all of it wait in memory: skip
//@ timeout 90
#include "hosts.h"
#include <time.h>

#define LINES 400000
#define LINE "a line of output that is sixty-three characters long, all told\n"

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

/* Prints, and then reports how long that took. */
static int printer(void)
{
    int parent = pvm_parent(), i;
    double began = now(), took;
    for (i = 0; i < LINES; i++)
        fputs(LINE, stdout);
    fflush(stdout);
    took = now() - began;
    pvm_initsend(PvmDataDefault);
    pvm_pkdouble(&took, 1, 1);
    pvm_send(parent, 1);
    pvm_exit();
    return 0;
}

/* Returns how many whole lines of the printer are in the file. */
static int count_lines(FILE *file)
{
    char line[200];
    int count = 0;
    rewind(file);
    while (fgets(line, sizeof line, file))
        count += strstr(line, LINE) != NULL;
    return count;
}

/* Starts a printer on this host and receives nothing for three seconds. */
static void collect(const char *host)
{
    FILE *file = tmpfile();
    double took = 0;
    int tid, lines;
    pvm_setopt(PvmShowTids, 0);
    pvm_catchout(file);
    tid = spawn_on(host, "printer");
    sleep(3);
    if (case_receive(tid, 1, PATIENCE) > 0)
        pvm_upkdouble(&took, 1, 1);
    /* Waits for the rest of the output. */
    pvm_exit();
    lines = count_lines(file);
    printf("%s: held up %d, all lines %d\n", host, took > 2, lines == LINES);
    if (lines != LINES)
        printf("%d lines\n", lines);
}

/* Ends while a printer waits for it; the printer must not wait for ever. */
static int deserter(void)
{
    int tid, parent = pvm_parent();
    pvm_catchout(tmpfile());
    tid = spawn_on("charlie", "printer");
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&tid, 1, 1);
    pvm_send(parent, 2);
    sleep(2);
    _exit(0);
}

int main(int argc, char **argv)
{
    int tid = 0, child;
    case_begin();
    if (argc > 1)
        return strcmp(argv[1], "printer") == 0 ? printer() : deserter();
    pvm_mytid();
    collect("bravo");
    child = spawn_on("delta", "deserter");
    if (case_receive(child, 2, PATIENCE) > 0)
        pvm_upkint(&tid, 1, 1);
    pvm_notify(PvmTaskExit, 3, 1, &tid);
    SHOW(case_receive(-1, 3, PATIENCE) > 0);
    pvm_exit();
    return 0;
}
