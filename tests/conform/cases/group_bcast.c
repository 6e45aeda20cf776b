/* pvm_bcast: all members except the caller, who need not be a member. */
#include "group.h"

static int tids[3];

static void heard(int tag)
{
    int child;
    for (child = 0; child < 3; child++)
        SHOW(group_do(tids[child], HEAR, "", tag, 0));
}

int main(int argc, char **argv)
{
    int child, mid, context;
    case_begin();
    if (argc > 1)
        return group_child();
    pvm_mytid();
    group_spawn(3, tids);
    for (child = 0; child < 3; child++)
        SHOW(group_do(tids[child], JOIN, "g", 0, 0));
    SHOW(group_cast("g", 1, 11));
    heard(1);
    SHOW(pvm_joingroup("g"));
    SHOW(group_cast("g", 2, 22));
    SHOW(case_receive(-1, 2, 0.1));
    heard(2);
    SHOW(group_do(tids[0], CAST, "g", 3, 33));
    SHOW(group_hear(3));
    heard(3);

    /* The send buffer stays and may be sent again; without a send buffer the call fails. */
    mid = pvm_getsbuf();
    SHOW(pvm_getsbuf() == mid && mid > 0);
    SHOW(pvm_bcast("g", 4));
    SHOW(pvm_getsbuf() == mid);
    heard(4);
    pvm_freebuf(mid);
    SHOW(pvm_bcast("g", 5));
    heard(5);

    /* A task that has left the group receives nothing, and a receive in another context finds nothing. */
    SHOW(group_do(tids[1], LEAVE, "g", 0, 0));
    SHOW(group_cast("g", 6, 66));
    heard(6);
    context = pvm_newcontext();
    pvm_setcontext(context);
    SHOW(group_cast("g", 7, 77));
    pvm_setcontext(0);
    heard(7);
    SHOW(pvm_bcast("g", -1));
    heard(-1);

    /* A group whose only member is the caller. */
    SHOW(pvm_joingroup("alone"));
    SHOW(group_cast("alone", 8, 88));
    SHOW(group_do(tids[0], CAST, "alone", 9, 99));
    SHOW(group_hear(9));
    SHOW(pvm_lvgroup("alone"));
    SHOW(group_cast("alone", 8, 88));

    /* Messages of several lengths and encodings. */
    {
        static int many[300000];
        int encoding;
        for (encoding = 0; encoding < 3; encoding++) {
            pvm_initsend(encoding);
            many[0] = 10 + encoding;
            pvm_pkint(many, 300000, 1);
            SHOW(pvm_bcast("g", 20 + encoding));
            SHOW(group_do(tids[0], HEAR, "", 20 + encoding, 0));
            SHOW(group_do(tids[2], HEAR, "", 20 + encoding, 0));
        }
    }
    group_end(3, tids);
    pvm_exit();
    return 0;
}
