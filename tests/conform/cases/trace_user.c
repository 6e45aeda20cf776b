/* The program's own trace events, sent by PvmDataTrace. */
//@ fresh
#include "trace.h"

static char bytes[] = "bytes";
static int ints[3] = {1, -2, 3};

static void event(int with)
{
    short one = 7;
    double numbers[2] = {1.5, -2};
    float fraction = 0.25;
    pvm_initsend(PvmDataTrace);
    if (with) {
        pvm_pkint(ints, 1, 1);
        pvm_pkint(ints, 3, 1);
        pvm_pkint(ints, 2, 2);
        pvm_pkint(ints, 0, 1);
        pvm_pkbyte(bytes, 5, 1);
        pvm_pkstr("words");
        pvm_pkshort(&one, 1, 1);
        pvm_pkdouble(numbers, 2, 1);
        pvm_pkfloat(&fraction, 1, 1);
    }
    SHOW(pvm_send(PVM_TRACE_TID, PVM_TRACE_CODE));
}

static void typed(int type)
{
    int kind = 0, count = 0;
    pvm_upkint(&kind, 1, 1);
    if (kind & TEV_DATA_ARRAY)
        pvm_upkint(&count, 1, 1);
    printf(kind == type ? " %x" : " %x!", kind);
    if (kind & TEV_DATA_ARRAY)
        printf("[%d]", count);
}

static void nothing_told(void)
{
    printf(" nothing");
}

static void told(void)
{
    int values[3] = {0, 0, 0};
    char text[8] = "";
    short one = 0;
    double numbers[2] = {0, 0};
    float fraction = 0;
    typed(TEV_DATA_INT);
    pvm_upkint(values, 1, 1);
    printf(" %d", values[0]);
    typed(TEV_DATA_INT | TEV_DATA_ARRAY);
    pvm_upkint(values, 3, 1);
    printf(" %d %d %d", values[0], values[1], values[2]);
    typed(TEV_DATA_INT | TEV_DATA_ARRAY);
    pvm_upkint(values, 2, 1);
    printf(" %d %d", values[0], values[1]);
    typed(TEV_DATA_BYTE | TEV_DATA_ARRAY);
    pvm_upkbyte(text, 5, 1);
    printf(" %s", text);
    typed(TEV_DATA_BYTE | TEV_DATA_ARRAY);
    pvm_upkbyte(text, 5, 1);
    printf(" %s", text);
    typed(TEV_DATA_SHORT);
    pvm_upkshort(&one, 1, 1);
    printf(" %d", one);
    typed(TEV_DATA_DOUBLE | TEV_DATA_ARRAY);
    pvm_upkdouble(numbers, 2, 1);
    printf(" %g %g", numbers[0], numbers[1]);
    typed(TEV_DATA_FLOAT);
    pvm_upkfloat(&fraction, 1, 1);
    printf(" %g", fraction);
}

/* The task is the receiver of its own traces: only the program's own events arrive. */
static void to_oneself(int wanted)
{
    Pvmtmask mask;
    char own[16];
    int not[2] = {wanted ? TEV_SEND : TEV_USER_DEFINED, -1};
    sprintf(own, "%x", pvm_mytid());
    trace_to(own, PvmTraceFull, not);
    event(1);
    event(0);
    TEV_MASK_INIT(mask);
    pvm_settmask(PvmTaskSelf, mask);
    while (case_receive(pvm_mytid(), TRACE_TAG, 0.3) > 0) {
        trace_user_told = trace_user_told == told ? nothing_told : told;
        trace_print();
    }
    trace_user_told = NULL;
    pvm_setopt(PvmSelfTraceTid, 0);
}

int main(int argc, char **argv)
{
    int value = 4, mark = 0, number = 0;
    case_begin();
    pvm_mytid();
    event(1); /* nobody collects traces */
    printf("---- to oneself\n");
    to_oneself(1);
    printf("---- not in the mask\n");
    to_oneself(0);
    printf("---- as a message of the usual kind\n");
    pvm_initsend(PvmDataTrace);
    pvm_pkint(&value, 1, 1);
    SHOW(pvm_send(pvm_mytid(), 9));
    case_own(9);
    pvm_upkint(&mark, 1, 1);
    pvm_upkint(&number, 1, 1);
    SHOW(mark);
    SHOW(number);
    pvm_exit();
    return 0;
}
