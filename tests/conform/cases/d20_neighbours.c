/* Successive collective operations with the same tag: each receives only its own messages (D20), and the user's
 * receives find none of them. */
//@ ours-only D20: skip
#include "group.h"

static int seen;

static int handler(int mid)
{
    (void)mid;
    seen++;
    return 0;
}

int main(int argc, char **argv)
{
    int tids[3], child, value = 77, id;
    case_begin();
    if (argc > 1)
        return group_child();
    id = pvm_addmhf(-1, 7, -1, handler);
    pvm_mytid();
    group_spawn(3, tids);
    SHOW(pvm_joingroup("g"));
    SHOW(pvm_joingroup("h"));
    for (child = 0; child < 3; child++) {
        SHOW(group_do(tids[child], JOIN, "g", 0, 0));
        SHOW(group_do(tids[child], JOIN, "h", 0, 0));
    }
    /* One child is far ahead of the others, in two groups. */
    for (child = 0; child < 3; child++) {
        SHOW(group_do(tids[child], SUM, "g", 1 << child, 0));
        SHOW(group_do(tids[child], SUM, "h", 10 << child, 0));
        SHOW(group_do(tids[child], SUM, "g", 100 << child, 0));
        SHOW(group_do(tids[child], GATHER, "g", child + 2, 0));
        SHOW(group_do(tids[child], GATHER, "h", child + 4, 0));
        SHOW(group_do(tids[child], GATHER, "g", child + 6, 0));
    }
    usleep(50000);
    /* The user's receives find no message of these operations. */
    SHOW(pvm_probe(-1, -1));
    SHOW(pvm_nrecv(-1, -1));
    SHOW(pvm_probe(-1, 7));
    SHOW(pvm_nrecv(tids[0], 8));
    pvm_setcontext(-1);
    SHOW(pvm_probe(-1, -1));
    pvm_setcontext(0);
    SHOW(group_sum("h", 500, 0));
    SHOW(group_sum("g", 500, 0));
    SHOW(group_sum("g", 500, 0));
    SHOW(group_gather("h", 1, 0));
    SHOW(group_gather("g", 1, 0));
    SHOW(group_gather("g", 1, 0));
    SHOW(seen);
    SHOW(pvm_delmhf(id));
    /* The user sends a message with the same tag. */
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&value, 1, 1);
    pvm_send(pvm_mytid(), 7);
    for (child = 0; child < 3; child++)
        group_order(tids[child], SUM, "g", 1, 0);
    SHOW(group_sum("g", 1, 0));
    for (child = 0; child < 3; child++)
        SHOW(group_answer(tids[child]));
    SHOW(case_receive(-1, 7, 1) > 0);
    value = 0;
    pvm_upkint(&value, 1, 1);
    SHOW(value);
    group_end(3, tids);
    pvm_exit();
    return 0;
}
