/* A task on another host spawns tasks: parents, children, and siblings on several hosts. */
#include "hosts.h"

static void child(void)
{
    int *siblings, count, parent = pvm_parent(), i, here = pvm_tidtohost(pvm_mytid());
    count = pvm_siblings(&siblings);
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&here, 1, 1);
    pvm_pkint(&count, 1, 1);
    for (i = 0; i < count; i++)
        pvm_pkint(&siblings[i], 1, 1);
    pvm_send(parent, 2);
}

static void middle(void)
{
    int tids[6], hosts[6], i, well, top = pvm_parent(), source, count, sibling, right = 1, k;
    well = case_spawn("child", 6, tids);
    for (i = 0; i < well; i++) {
        case_receive(tids[i], 2, PATIENCE);
        pvm_bufinfo(pvm_getrbuf(), NULL, NULL, &source);
        pvm_upkint(&hosts[i], 1, 1);
        pvm_upkint(&count, 1, 1);
        right &= source == tids[i] && hosts[i] == pvm_tidtohost(tids[i]) && count == 6;
        for (k = 0; k < count; k++) {
            pvm_upkint(&sibling, 1, 1);
            right &= sibling == tids[k];
        }
    }
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&well, 1, 1);
    pvm_pkint(&right, 1, 1);
    pvm_pkint(hosts, 6, 1);
    pvm_send(top, 3);
    pvm_recv(top, 4);
}

int main(int argc, char **argv)
{
    static const char *names[] = {"bravo", "delta"};
    int i, k, well, right, hosts[6], tid;
    case_begin();
    if (argc > 1 && strcmp(argv[1], "child") == 0)
        child();
    else if (argc > 1)
        middle();
    else {
        pvm_mytid();
        for (i = 0; i < 2; i++) {
            tid = spawn_on(names[i], "middle");
            SHOW(tid > 0);
            SHOW(case_receive(tid, 3, PATIENCE) > 0);
            pvm_upkint(&well, 1, 1);
            pvm_upkint(&right, 1, 1);
            pvm_upkint(hosts, 6, 1);
            printf("from %s: %d %d;", names[i], well, right);
            for (k = 0; k < 6; k++)
                printf(" %x", hosts[k]);
            printf("\n");
            case_signal(tid, 4);
            case_gone(tid);
        }
    }
    pvm_exit();
    return 0;
}
