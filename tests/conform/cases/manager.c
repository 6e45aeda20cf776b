/* pvm_reg_rm: the resource manager answers in place of the daemon. */
//@ fresh
#include "case.h"
#include <pvmproto.h>

static int manager(void)
{
    struct pvmhostinfo *hosts = NULL;
    struct pvmminfo info, reply;
    int result, tid = 0;
    pvm_setopt(PvmResvTids, 1);
    result = pvm_reg_rm(&hosts);
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&result, 1, 1);
    result = hosts != NULL && hosts[0].hi_tid == 0x40000;
    pvm_pkint(&result, 1, 1);
    pvm_send(pvm_parent(), 1);
    for (;;) {
        int found = 0, got, message = pvm_recv(-1, -1);
        pvm_getminfo(message, &info);
        if (info.tag == 9)
            break;
        if (info.tag != SM_CONFIG)
            continue;
        /* Answers with a list of invented hosts. */
        pvm_initsend(PvmDataDefault);
        found = 1;
        pvm_pkint(&found, 1, 1);
        pvm_pkint(&found, 1, 1);
        tid = 0x40000;
        pvm_pkint(&tid, 1, 1);
        pvm_pkstr("managed");
        pvm_pkstr("SOMEARCH");
        got = 1234;
        pvm_pkint(&got, 1, 1);
        pvm_pkint(&got, 1, 1);
        pvm_getminfo(pvm_getsbuf(), &reply);
        reply.wid = info.wid;
        pvm_setminfo(pvm_getsbuf(), &reply);
        pvm_send(info.src, info.tag);
    }
    pvm_exit();
    return 0;
}

static int client(void)
{
    struct pvmhostinfo *hosts = NULL;
    int count = 0;
    int parent = pvm_parent();
    pvm_config(&count, NULL, &hosts);
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&count, 1, 1);
    pvm_pkstr(count > 0 ? hosts[0].hi_name : "nothing");
    pvm_pkstr(count > 0 ? hosts[0].hi_arch : "nothing");
    pvm_send(parent, 2);
    pvm_exit();
    return 0;
}

int main(int argc, char **argv)
{
    int server, child, count, result[2];
    struct pvmhostinfo *hosts;
    char text[256];
    case_begin();
    if (argc > 1 && !strcmp(argv[1], "manager"))
        return manager();
    if (argc > 1)
        return client();
    pvm_mytid();
    SHOW(case_spawn_here("manager", 1, &server));
    SHOW(case_receive(server, 1, 5) > 0);
    pvm_upkint(result, 2, 1);
    SHOW(result[0]);
    SHOW(result[1]);
    /* Tasks that enrolled before the manager registered still ask the daemon. */
    SHOW(pvm_config(&count, NULL, &hosts));
    SHOW(strcmp(hosts[0].hi_name, "managed") != 0);
    SHOW(case_spawn_here("client", 1, &child));
    SHOW(case_receive(child, 2, 5) > 0);
    pvm_upkint(&count, 1, 1);
    SHOW(count);
    pvm_upkstr(text);
    SHOW_TEXT(text);
    pvm_upkstr(text);
    SHOW_TEXT(text);
    case_gone(child);
    case_signal(server, 9);
    case_gone(server);
    pvm_exit();
    return 0;
}
