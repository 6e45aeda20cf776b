/* A hoster dies with a pending request: the task that called pvm_addhosts gets an error, and hosts can be added
 * again. */
//@ fresh
//@ timeout 40
#include "case.h"
#include <pvmproto.h>

enum { REGISTERED = 1, ASKED = 2, RESULT = 3 };

/* Receives one request and never answers it. */
static void hoster(void)
{
    int status;
    pvm_setopt(PvmResvTids, 1);
    status = pvm_reg_hoster();
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&status, 1, 1);
    pvm_send(pvm_parent(), REGISTERED);
    pvm_recv(-1, SM_STHOST);
    case_signal(pvm_parent(), ASKED);
    for (;;)
        pause();
}

/* Adds a host and reports the result. */
static void adder(void)
{
    char *name = "192.0.2.7";
    int result[2] = {0, -99};
    result[0] = pvm_addhosts(&name, 1, &result[1]);
    pvm_initsend(PvmDataDefault);
    pvm_pkint(result, 2, 1);
    pvm_send(pvm_parent(), RESULT);
    pvm_exit();
}

static void show_result(int tid)
{
    int result[2] = {-98, -98};
    SHOW(case_receive(tid, RESULT, 20) > 0);
    pvm_upkint(result, 2, 1);
    printf("added: %d, %d\n", result[0], result[1]);
}

int main(int argc, char **argv)
{
    int server, asker, value = -99, round, *tids = &value, count = -1;
    struct pvmmboxinfo *boxes;
    case_begin();
    if (argc > 1 && !strcmp(argv[1], "hoster"))
        hoster();
    if (argc > 1) {
        adder();
        return 0;
    }
    pvm_mytid();
    (void)tids;
    for (round = 0; round < 2; round++) {
        SHOW(case_spawn("hoster", 1, &server));
        SHOW(case_receive(server, REGISTERED, 5) > 0);
        pvm_upkint(&value, 1, 1);
        SHOW(value);
        SHOW(case_spawn("adder", 1, &asker));
        SHOW(case_receive(server, ASKED, 10) > 0);
        SHOW(pvm_sendsig(server, 9));
        case_gone(server);
        show_result(asker);
        SHOW(pvm_getmboxinfo("###_PVM_HOSTER", &count, &boxes));
        SHOW(count);
    }
    pvm_exit();
    return 0;
}
