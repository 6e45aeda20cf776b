/* The options about the collectors of children, in a task whose own collectors are those of its parent: output of
 * grandchildren reaches such a collector with the tag and context that the collector expects. */
#include "case.h"

/* Sets an option and packs its name, the result, and the value after it. */
#define SET(option, value) set(#option ", " #value, option, value)

static void set(char *text, int option, int value)
{
    int result = pvm_setopt(option, value), now = pvm_getopt(option);
    pvm_pkstr(text);
    pvm_pkint(&result, 1, 1);
    pvm_pkint(&now, 1, 1);
}

/* Returns a number, or a word for a tid. */
static char *named(int value, int child)
{
    static char numbers[2][20];
    static int turn;
    turn = !turn;
    sprintf(numbers[turn], "%d", value);
    return value == pvm_mytid() ? "parent" : value == child ? "child" : numbers[turn];
}

static int child(void)
{
    int me = pvm_mytid(), parent = pvm_parent();
    pvm_setopt(PvmAutoErr, 0);
    pvm_initsend(PvmDataDefault);
    SET(PvmOutputCode, 5);
    SET(PvmOutputCode, 55);
    SET(PvmOutputContext, 6);
    SET(PvmOutputContext, 0);
    SET(PvmOutputTid, parent);
    SET(PvmOutputTid, me);
    SET(PvmOutputTid, parent);
    SET(PvmOutputTid, me);
    SET(PvmOutputCode, 55);
    SET(PvmOutputTid, parent);
    SET(PvmOutputCode, 5);
    SET(PvmOutputTid, parent);
    SET(PvmOutputTid, 0);
    SET(PvmOutputCode, 5);
    SET(PvmOutputContext, 7);
    SET(PvmOutputTid, parent);
    SET(PvmOutputTid, me);
    SET(PvmOutputCode, 5);
    SET(PvmOutputContext, 7);
    SET(PvmOutputTid, parent);
    SET(PvmOutputContext, 0);
    SET(PvmOutputTid, parent);
    SET(PvmSelfOutputTid, 0); /* the task's own collectors decide, not those that it has inherited */
    SET(PvmOutputTid, parent);
    SET(PvmSelfOutputTid, parent);
    SET(PvmSelfOutputCode, 77);
    SET(PvmOutputCode, 78);
    SET(PvmOutputCode, 5);
    SET(PvmOutputCode, 77);
    SET(PvmOutputTid, me);
    SET(PvmOutputTid, parent);
    SET(PvmSelfOutputTid, me);
    SET(PvmOutputTid, parent);
    SET(PvmTraceCode, 8);
    SET(PvmTraceCode, 88);
    SET(PvmTraceContext, 6);
    SET(PvmTraceContext, 0);
    SET(PvmTraceTid, me);
    SET(PvmTraceCode, 88);
    SET(PvmTraceTid, parent);
    SET(PvmTraceCode, 8);
    SET(PvmTraceTid, parent);
    SET(PvmTraceTid, 0);
    SET(PvmTraceCode, 88);
    SET(PvmTraceTid, parent);
    pvm_pkstr("");
    pvm_send(parent, 1);
    pvm_exit();
    return 0;
}

int main(int argc, char **argv)
{
    int tid, result, value;
    char text[100];
    case_begin();
    if (argc > 1)
        return child();
    pvm_setopt(PvmOutputTid, pvm_mytid());
    pvm_setopt(PvmOutputCode, 5);
    pvm_setopt(PvmTraceTid, pvm_mytid());
    pvm_setopt(PvmTraceCode, 8);
    case_spawn("child", 1, &tid);
    if (case_receive(tid, 1, 5) <= 0)
        printf("no message\n");
    while (pvm_upkstr(text) == 0 && *text) {
        pvm_upkint(&result, 1, 1);
        pvm_upkint(&value, 1, 1);
        printf("%s: %s, then %s\n", text, named(result, tid), named(value, tid));
    }
    pvm_exit();
    return 0;
}
