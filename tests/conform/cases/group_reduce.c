/* pvm_reduce: every type with every function, compared with what one process computes alone. */
//@ differs D1: PvmMax of type 8: 19 wrong => PvmMax of type 8: 0 wrong
//@ differs D1: PvmMin of type 8: 16 wrong => PvmMin of type 8: 0 wrong
//@ differs D1: PvmSum of type 8: 19 wrong => PvmSum of type 8: 0 wrong
//@ differs D1: PvmProduct of type 8: 19 wrong => PvmProduct of type 8: 0 wrong
//@ differs D1: all(0, 0): 73 => all(0, 0): 0
//@ differs D1: member 3: 0 1 0 => member 3: 0 0 0
#include "group.h"
#include <complex.h>

#define MEMBERS 5
/* Few items, which are sent in a queue slot, and many items; both numbers are odd. */
#define COUNT 19
#define COUNT_LONG 2501

typedef void combine(int *, void *, void *, int *, int *);
enum { MAX, MIN, SUM_OF, PRODUCT };
static combine *functions[] = {PvmMax, PvmMin, PvmSum, PvmProduct};
static const char *names[] = {"PvmMax", "PvmMin", "PvmSum", "PvmProduct"};
static int types[] = {PVM_BYTE, PVM_SHORT, PVM_INT, PVM_FLOAT, PVM_CPLX, PVM_DOUBLE, PVM_DCPLX, PVM_LONG};

/* Returns the item of a member at a place. At each place, no two members have items of the same modulus. */
static double complex item(int type, int member, int place)
{
    int size = (member * 3 + place) % MEMBERS;
    if (type == PVM_CPLX || type == PVM_DCPLX)
        return (size + 1) - size * I;
    return (size + place) % 2 ? -(size + 1) : size + 1;
}

static void put(int type, void *data, int place, double complex value)
{
    switch (type) {
    case PVM_BYTE: ((signed char *)data)[place] = (signed char)creal(value); break;
    case PVM_SHORT: ((short *)data)[place] = (short)creal(value); break;
    case PVM_INT: ((int *)data)[place] = (int)creal(value); break;
    case PVM_LONG: ((long *)data)[place] = (long)creal(value); break;
    case PVM_FLOAT: ((float *)data)[place] = (float)creal(value); break;
    case PVM_DOUBLE: ((double *)data)[place] = creal(value); break;
    case PVM_CPLX: ((float complex *)data)[place] = (float complex)value; break;
    case PVM_DCPLX: ((double complex *)data)[place] = value; break;
    }
}

static double complex get(int type, void *data, int place)
{
    switch (type) {
    case PVM_BYTE: return ((signed char *)data)[place];
    case PVM_SHORT: return ((short *)data)[place];
    case PVM_INT: return ((int *)data)[place];
    case PVM_LONG: return ((long *)data)[place];
    case PVM_FLOAT: return ((float *)data)[place];
    case PVM_DOUBLE: return ((double *)data)[place];
    case PVM_CPLX: return ((float complex *)data)[place];
    default: return ((double complex *)data)[place];
    }
}

static double complex together(int what, double complex x, double complex y, int is_complex)
{
    int larger = is_complex ? creal(y * conj(y)) > creal(x * conj(x)) : creal(y) > creal(x);
    switch (what) {
    case MAX: return larger ? y : x;
    case MIN: return larger ? x : y;
    case SUM_OF: return x + y;
    default: return x * y;
    }
}

static double complex alone(int what, int type, int place)
{
    double complex result = item(type, 0, place);
    int member;
    for (member = 1; member < MEMBERS; member++)
        result = together(what, result, item(type, member, place), type == PVM_CPLX || type == PVM_DCPLX);
    return result;
}

/* Runs one reduction of all members. Returns how many results of the root are wrong, or the code.
 */
static int once(int own, int what, int type, int count, int root)
{
    static char data[COUNT_LONG * sizeof(double complex) + 1];
    int place, result, wrong = 0;
    memset(data, 0x5a, sizeof data);
    for (place = 0; place < count; place++)
        put(type, data, place, item(type, own, place));
    result = pvm_reduce(functions[what], data, count, type, 11, "g", root);
    if (result < 0 || own != root)
        return result;
    for (place = 0; place < count; place++)
        wrong += get(type, data, place) != alone(what, type, place);
    return wrong;
}

static int is_defined(int what, int type)
{
    return type != PVM_BYTE || what == MAX || what == MIN;
}

/* Runs all reductions. If this task is the root, returns the number of wrong results or an error code. */
static int all(int own, int root)
{
    int what, type, sum = 0, wrong;
    for (what = 0; what < 4; what++)
        for (type = 0; type < 8; type++) {
            if (!is_defined(what, types[type]))
                continue;
            pvm_barrier("g", MEMBERS);
            wrong = once(own, what, types[type], COUNT, root);
            if (own == 0 && root == 0)
                printf("%s of type %d: %d wrong\n", names[what], types[type], wrong);
            sum += wrong;
        }
    return sum;
}

/* The same as all, for many items of the type that PVM damages (D1). */
static int all_long(int own, int root)
{
    int what, type, sum = 0;
    for (what = 0; what < 4; what++)
        for (type = 0; type < 7; type++) {
            if (!is_defined(what, types[type]))
                continue;
            pvm_barrier("g", MEMBERS);
            sum += once(own, what, types[type], COUNT_LONG, root);
        }
    return sum;
}

static int child(void)
{
    int own = pvm_joingroup("g"), results[3];
    pvm_barrier("g", MEMBERS);
    results[0] = all(own, 0);
    results[1] = all(own, 3);
    results[2] = all_long(own, 2);
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&own, 1, 1);
    pvm_pkint(results, 3, 1);
    pvm_send(pvm_parent(), 1);
    pvm_barrier("g", MEMBERS);
    pvm_exit();
    return 0;
}

int main(int argc, char **argv)
{
    int tids[MEMBERS - 1], turn, results[MEMBERS][3], who;
    case_begin();
    if (argc > 1)
        return child();
    pvm_mytid();
    SHOW(pvm_joingroup("g"));
    group_spawn(MEMBERS - 1, tids);
    pvm_barrier("g", MEMBERS);
    SHOW(all(0, 0));
    SHOW(all(0, 3));
    SHOW(all_long(0, 2));
    for (turn = 1; turn < MEMBERS; turn++) {
        if (case_receive(-1, 1, 10) <= 0)
            break;
        pvm_upkint(&who, 1, 1);
        pvm_upkint(results[who], 3, 1);
    }
    for (turn = 1; turn < MEMBERS; turn++)
        printf("member %d: %d %d %d\n", turn, results[turn][0], results[turn][1] != 0, results[turn][2]);
    pvm_barrier("g", MEMBERS);
    pvm_exit();
    return 0;
}
