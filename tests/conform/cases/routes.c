/* With every route option, messages arrive in both directions and in all encodings. */
#include "case.h"

static int echo(int route)
{
    int parent = pvm_parent(), value;
    pvm_setopt(PvmRoute, route);
    for (;;) {
        pvm_recv(parent, -1);
        pvm_upkint(&value, 1, 1);
        if (value < 0)
            break;
        value++;
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&value, 1, 1);
        pvm_send(parent, 2);
    }
    pvm_exit();
    return 0;
}

int main(int argc, char **argv)
{
    int mine, theirs, tid, i, value, sum;
    char role[8];
    case_begin();
    if (argc > 1)
        return echo(atoi(argv[1]));
    pvm_mytid();
    for (mine = PvmDontRoute; mine <= PvmRouteDirect; mine++)
        for (theirs = PvmDontRoute; theirs <= PvmRouteDirect; theirs++) {
            snprintf(role, sizeof role, "%d", theirs);
            pvm_setopt(PvmRoute, mine);
            case_spawn(role, 1, &tid);
            for (i = sum = 0; i < 20; i++) {
                pvm_initsend(i % 3);
                pvm_pkint(&i, 1, 1);
                pvm_send(tid, 1);
                if (case_receive(tid, 2, 5) <= 0)
                    break;
                pvm_upkint(&value, 1, 1);
                sum += value;
            }
            printf("routes %d %d: sum %d\n", mine, theirs, sum);
            i = -1;
            pvm_psend(tid, 1, &i, 1, PVM_INT);
            case_gone(tid);
        }
    pvm_exit();
    return 0;
}
