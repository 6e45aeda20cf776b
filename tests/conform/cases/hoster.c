/* The daemon asks a hoster to start hosts. */
//@ fresh
#include "case.h"
#include <pvmproto.h>

static int hoster(void)
{
    int count = -1, status, i, tid;
    char text[4096];
    struct pvmminfo info, reply;
    pvm_setopt(PvmResvTids, 1);
    status = pvm_reg_hoster();
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&status, 1, 1);
    pvm_send(pvm_parent(), 1);
    pvm_recv(-1, SM_STHOST);
    pvm_getminfo(pvm_getrbuf(), &info);
    pvm_upkint(&count, 1, 1);
    printf("asked for %d hosts\n", count);
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&count, 1, 1);
    for (i = 0; i < count; i++) {
        pvm_upkint(&tid, 1, 1);
        pvm_upkstr(text);
        pvm_upkstr(text);
        pvm_upkstr(text);
        pvm_pkint(&tid, 1, 1);
        pvm_pkstr("PvmCantStart");
        pvm_upkstr(text);
        pvm_upkstr(text);
    }
    pvm_getminfo(pvm_getsbuf(), &reply);
    reply.wid = info.wid;
    pvm_setminfo(pvm_getsbuf(), &reply);
    pvm_send(info.src, SM_STHOSTACK);
    pvm_recv(pvm_parent(), 9);
    pvm_exit();
    return 0;
}

int main(int argc, char **argv)
{
    int server, i, status = -99;
    char *name = "no-such-host.invalid";
    case_begin();
    if (argc > 1)
        return hoster();
    pvm_mytid();
    SHOW(case_spawn("hoster", 1, &server));
    SHOW(case_receive(server, 1, 5) > 0);
    pvm_upkint(&i, 1, 1);
    SHOW(i);
    SHOW(pvm_addhosts(&name, 1, &status) <= 0);
    case_signal(server, 9);
    case_gone(server);
    pvm_exit();
    return 0;
}
