/* survive: a farm that adds the squares of 1 to 100. Workers and their hosts may be lost: the sum is always right. */
#include <pvm3.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { WORKERS = 3, LOST_MAX = 20, JOBS = 100, TAG_JOB = 1, TAG_RESULT = 2, TAG_EXIT = 3 };

static int workers[WORKERS];                        /* tids */
static int in_hand[WORKERS];                        /* the job of each worker, 0 for none */
static int is_done[JOBS + 1];

static int work(int master)
{
    int job, square, tag, buffer;
    pvm_notify(PvmTaskExit, TAG_EXIT, 1, &master);
    for (;;) {
        buffer = pvm_recv(-1, -1);
        pvm_bufinfo(buffer, NULL, &tag, NULL);
        pvm_upkint(&job, 1, 1);
        if (tag == TAG_EXIT || job == 0)            /* the master is gone, or there is no more work */
            return 0;
        usleep(10000);                              /* the work of a real program */
        square = job * job;
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&job, 1, 1);
        pvm_pkint(&square, 1, 1);
        pvm_send(master, TAG_RESULT);
    }
}

/* Returns a job that nobody has done and nobody has in hand, or 0. */
static int next_job(void)
{
    int job, worker;
    for (job = 1; job <= JOBS; job++) {
        int free = !is_done[job];
        for (worker = 0; worker < WORKERS; worker++)
            free = free && in_hand[worker] != job;
        if (free)
            return job;
    }
    return 0;
}

static void hand_out(int worker, int job)
{
    in_hand[worker] = job;
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&job, 1, 1);
    pvm_send(workers[worker], TAG_JOB);
}

static void start(int worker)
{
    if (pvm_spawn("survive", NULL, PvmTaskDefault, "", 1, &workers[worker]) != 1) {
        fprintf(stderr, "survive: a worker could not be started\n");
        pvm_exit();
        exit(1);
    }
    pvm_notify(PvmTaskExit, TAG_EXIT, 1, &workers[worker]);
    hand_out(worker, next_job());
}

static int find(int tid)
{
    int worker = 0;
    while (worker < WORKERS && workers[worker] != tid)
        worker++;
    return worker;
}

/* What happens to real farms, for the sake of this example: "kill" ends a worker, "lose HOST" removes a host. */
static void harm(int count, char **words)
{
    int code;
    if (count == 2)
        pvm_sendsig(workers[0], SIGKILL);
    else if (count == 3)
        pvm_delhosts(&words[2], 1, &code);
}

static void lead(int count, char **words)
{
    int done = 0, sum = 0, lost = 0, worker, job, square, tag, tid, buffer;
    for (worker = 0; worker < WORKERS; worker++)
        start(worker);
    while (done < JOBS && lost <= LOST_MAX) {
        buffer = pvm_recv(-1, -1);
        pvm_bufinfo(buffer, NULL, &tag, &tid);
        if (tag == TAG_EXIT) {                      /* the message of pvm_notify: a worker is gone */
            pvm_upkint(&tid, 1, 1);
            worker = find(tid);
            printf("survive: lost a worker with job %d in hand\n", in_hand[worker]);
            in_hand[worker] = 0;                    /* its job is free again */
            lost++;
            start(worker);
            continue;
        }
        pvm_upkint(&job, 1, 1);
        pvm_upkint(&square, 1, 1);
        is_done[job] = 1;
        sum += square;
        worker = find(tid);
        if (++done == 50)
            harm(count, words);
        in_hand[worker] = 0;
        if (next_job() > 0)
            hand_out(worker, next_job());
    }
    for (worker = 0; worker < WORKERS; worker++)
        hand_out(worker, 0);
    printf("survive: %d jobs, %d lost workers, sum %d\n", done, lost, sum);
}

int main(int argc, char **argv)
{
    int master;
    pvm_mytid();
    master = pvm_parent();
    if (master > 0)
        work(master);
    else
        lead(argc, argv);
    pvm_exit();
    return 0;
}
