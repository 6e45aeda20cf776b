/* pvm_errno after calls that fail silently, and after calls that succeed. */
//@ fresh
//@ differs 2.0: pvm_parent(): -23 errno 77 => pvm_parent(): -23 errno -23
//@ differs 2.0: pvm_pstat(me | 0x3fff0): -31 errno 77 => pvm_pstat(me | 0x3fff0): -31 errno -31
//@ differs 2.0: pvm_mstat("no-such-host"): -6 errno 77 => pvm_mstat("no-such-host"): -6 errno -6
//@ differs D17: pvm_upkmesg(): -5 errno 77 => pvm_upkmesg(): -15 errno 77
//@ differs 2.0: pvm_spawn("no-such-program", NULL, PvmTaskDefault, "", 2, tids): 0 errno 77 => pvm_spawn("no-such-program", NULL, PvmTaskDefault, "", 2, tids): 0 errno -7
//@ differs 2.0: pvm_spawn("/bin/true", NULL, PvmTaskHost, "no-such-host", 1, tids): 0 errno 77 => pvm_spawn("/bin/true", NULL, PvmTaskHost, "no-such-host", 1, tids): 0 errno -6
//@ differs 2.0: pvm_addhosts(hosts, 1, tids): 0 errno 77 => pvm_addhosts(hosts, 1, tids): 0 errno -6
//@ differs 2.0: pvm_delhosts(hosts, 1, tids): 0 errno 77 => pvm_delhosts(hosts, 1, tids): 0 errno -6
#include "case.h"

#define AFTER(call)                                                                                \
    do {                                                                                           \
        int result_;                                                                               \
        pvm_errno = 77;                                                                            \
        result_ = (call);                                                                          \
        printf("%s: %d errno %d\n", #call, result_ > 0 ? 1 : result_, pvm_errno);                  \
    } while (0)

int main(void)
{
    int data, me, tids[2];
    char *hosts[] = {"no-such-host.invalid"};
    case_begin();
    me = pvm_mytid();
    AFTER(pvm_parent());
    AFTER(pvm_pstat(me | 0x3fff0));
    AFTER(pvm_mstat("no-such-host"));
    AFTER(pvm_lookup("none", 0, &data));
    AFTER(pvm_delete("none", 0));
    AFTER(pvm_delinfo("none", 0, 0));
    AFTER(pvm_recvinfo("none", 0, 0));
    AFTER(pvm_insert("name", 0, 1));
    AFTER(pvm_insert("name", 0, 1));
    AFTER(pvm_pkmesg(0));
    AFTER(pvm_pkmesgbody(0));
    AFTER(pvm_upkmesg());
    AFTER(pvm_initsend(9));
    AFTER(pvm_initsend(0));
    AFTER(pvm_send(0, 0));
    AFTER(pvm_send(me, 0));
    AFTER(pvm_recv(me, 0));
    AFTER(pvm_upkint(&data, 1, 1));
    AFTER(pvm_nrecv(-1, 5));
    AFTER(pvm_freebuf(0));
    AFTER(pvm_config(NULL, NULL, NULL));
    AFTER(pvm_spawn("no-such-program", NULL, PvmTaskDefault, "", 2, tids));
    AFTER(pvm_spawn("/bin/true", NULL, PvmTaskHost, "no-such-host", 1, tids));
    AFTER(pvm_spawn("/bin/true", NULL, PvmTaskDefault, "", 1, tids));
    AFTER(pvm_addhosts(hosts, 1, tids));
    AFTER(pvm_delhosts(hosts, 1, tids));
    pvm_exit();
    return 0;
}
