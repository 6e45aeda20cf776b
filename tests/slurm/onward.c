/* A program whose machine loses its first host, and which goes on: it is told of the loss, finds its mailbox entry, and
 * spawns a task on each other host that is left.
 *
 * onward HOST: HOST is the one that will be lost. */
#include <limits.h>
#include <pvm3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { HOST_GONE = 1, HERE };

int main(int argc, char **argv)
{
    struct pvmhostinfo *hosts;
    char *words[] = { "worker", NULL }, program[PATH_MAX] = "";
    int count, i, tid, own = pvm_tidtohost(pvm_mytid()), first = 0, kept = 0, spawned = 0;

    if (argc > 1 && strcmp(argv[1], "worker") == 0) {
        pvm_initsend(PvmDataDefault);
        pvm_send(pvm_parent(), HERE);
        pvm_exit();
        return 0;
    }
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0)
        return 1;
    pvm_config(&count, NULL, &hosts);
    for (i = 0; i < count; i++)
        if (argc > 1 && strcmp(hosts[i].hi_name, argv[1]) == 0)
            first = hosts[i].hi_tid;
    pvm_notify(PvmHostDelete, HOST_GONE, 1, &first);
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&count, 1, 1);
    pvm_putinfo("onward", pvm_getsbuf(), PvmMboxDefault);
    printf("%d hosts; waits for the loss of one\n", count);
    fflush(stdout);
    pvm_recv(-1, HOST_GONE);
    if (pvm_setrbuf(pvm_recvinfo("onward", 0, PvmMboxDefault)) >= 0)
        pvm_upkint(&kept, 1, 1);
    pvm_config(&count, NULL, &hosts);
    for (i = 0; i < count; i++) {
        if (hosts[i].hi_tid != own && pvm_spawn(program, words, PvmTaskHost, hosts[i].hi_name, 1, &tid) == 1) {
            pvm_recv(tid, HERE);
            spawned++;
        }
    }
    printf("goes on: %d hosts, %d tasks were spawned, the entry says %d\n", count, spawned, kept);
    pvm_exit();
    return 0;
}
