/* A small limit of the file size: messages do not count as files, and no task is killed. */
#include "case.h"
#include <sys/resource.h>

static char body[1000000];

int main(int count, char **words)
{
    struct rlimit limit;
    int tid, at;
    limit.rlim_cur = limit.rlim_max = 4000L * 1024;
    setrlimit(RLIMIT_FSIZE, &limit);
    if (count > 1) {
        for (at = 0; at < 20; at++) {
            pvm_recv(pvm_parent(), at);
            pvm_upkbyte(body, sizeof body, 1);
            pvm_initsend(PvmDataRaw);
            pvm_pkbyte(body, sizeof body, 1);
            pvm_send(pvm_parent(), body[sizeof body - 1]);
        }
        pvm_exit();
        return words == NULL;
    }
    case_begin();
    case_spawn("echo", 1, &tid);
    for (at = 0; at < 20; at++) {
        memset(body, at, sizeof body);
        pvm_initsend(PvmDataRaw);
        pvm_pkbyte(body, sizeof body, 1);
        SHOW(pvm_send(tid, at));
        SHOW_SIGN(pvm_recv(tid, at));
        memset(body, 99, sizeof body);
        SHOW(pvm_upkbyte(body, sizeof body, 1));
        SHOW(body[sizeof body - 1]);
    }
    pvm_exit();
    return 0;
}
