/* A program that `srun` or `pvm run` starts: joins a group, and member 0 prints on how many hosts the members are. */
#include <pvm3.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 3;
    int seconds = argc > 2 ? atoi(argv[2]) : 0;
    int tid = pvm_mytid(), number = pvm_joingroup("members"), hosts = 0, i, j;
    int *host = calloc(count, sizeof *host);

    if (tid < 0 || number < 0 || pvm_barrier("members", count) < 0) {
        fprintf(stderr, "member: no machine or no group\n");
        return 1;
    }
    /* Two jobs whose machines were one would have more members after this time. */
    sleep(seconds);
    if (number != 0) {
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&tid, 1, 1);
        pvm_send(pvm_gettid("members", 0), 1);
    } else {
        for (i = 0; i < count; i++) {
            int other = tid;

            if (i > 0) {
                pvm_recv(-1, 1);
                pvm_upkint(&other, 1, 1);
            }
            host[i] = pvm_tidtohost(other);
            for (j = 0; host[j] != host[i]; j++)
                continue;
            hosts += j == i;
        }
        printf("%d of %d members on %d hosts\n", pvm_gsize("members"), count, hosts);
    }
    pvm_barrier("members", count);
    pvm_exit();
    return 0;
}
