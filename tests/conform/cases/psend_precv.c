/* psend and precv: types, lengths and truncation; the active buffers stay unchanged. */
#include "case.h"

static int me;

static void round_trip(int type, int size, const char *name)
{
    char out[64], in[64];
    int i, tid = -1, tag = -1, length = -1;
    for (i = 0; i < 64; i++)
        out[i] = i + 1, in[i] = 0;
    printf("%s: psend %d\n", name, pvm_psend(me, 5, out, 3, type));
    printf("%s: precv %d", name, pvm_precv(me, 5, in, 3, type, &tid, &tag, &length));
    printf(" from me %d tag %d length %d equal %d\n", tid == me, tag, length, !memcmp(in, out, 3 * size) && in[3 * size] == 0);
}

int main(void)
{
    int values[8] = {1, 2, 3, 4, 5, 6, 7, 8}, in[8] = {0}, sender, receiver, length, tid, tag;
    char letters[16] = {0};
    case_begin();
    me = pvm_mytid();
    sender = pvm_initsend(PvmDataDefault);
    pvm_pkint(values, 1, 1);
    pvm_send(me, 1);
    receiver = case_own(1);
    round_trip(PVM_BYTE, 1, "byte");
    round_trip(PVM_SHORT, 2, "short");
    round_trip(PVM_INT, 4, "int");
    round_trip(PVM_FLOAT, 4, "float");
    round_trip(PVM_CPLX, 8, "cplx");
    round_trip(PVM_DOUBLE, 8, "double");
    round_trip(PVM_DCPLX, 16, "dcplx");
    round_trip(PVM_LONG, 8, "long");
    round_trip(PVM_USHORT, 2, "ushort");
    round_trip(PVM_UINT, 4, "uint");
    round_trip(PVM_ULONG, 8, "ulong");
    SHOW(pvm_getsbuf() == sender);
    SHOW(pvm_getrbuf() == receiver);
    SHOW(pvm_psend(me, 5, letters, 3, PVM_STR));
    SHOW(pvm_psend(me, 5, letters, 3, 12));
    SHOW(pvm_psend(me, 5, letters, 3, -1));
    pvm_setopt(PvmAutoErr, 0); /* PVM prints the error once for each function in the call chain */
    SHOW(pvm_psend(me, -5, letters, 3, PVM_BYTE));
    SHOW(pvm_psend(0, 5, letters, 3, PVM_BYTE));
    SHOW(pvm_psend(-1, 5, letters, 3, PVM_BYTE));
    SHOW(pvm_psend(me, 6, values, 0, PVM_INT));
    SHOW(pvm_precv(me, 6, in, 8, PVM_INT, &tid, &tag, &length));
    SHOW(length);
    SHOW(pvm_psend(me, 6, values, -3, PVM_INT)); /* sent empty */
    SHOW(pvm_precv(me, 6, in, 8, PVM_INT, &tid, &tag, &length));
    SHOW(length);
    pvm_setopt(PvmAutoErr, 1);
    SHOW(pvm_psend(me, 6, values, 8, PVM_INT));
    SHOW(pvm_precv(-1, -1, in, 3, PVM_INT, NULL, NULL, &length)); /* the items that do not fit are lost */
    printf("cut: %d %d %d %d of %d bytes\n", in[0], in[1], in[2], in[3], length);
    SHOW(pvm_psend(me, 6, values + 5, 2, PVM_INT));
    SHOW(pvm_precv(-1, 6, in, 8, PVM_INT, NULL, NULL, NULL));
    printf("short: %d %d %d %d\n", in[0], in[1], in[2], in[3]);
    pvm_send(me, 7); /* precv of a packed message gives its encoded bytes */
    SHOW(pvm_precv(me, 7, letters, 16, PVM_BYTE, NULL, NULL, &length));
    SHOW(length);
    SHOW(pvm_psend(me, 8, values, 4, PVM_INT));
    SHOW(pvm_recv(me, 8) > 0); /* a psend message can be received by recv */
    SHOW(pvm_upkint(in, 4, 1));
    printf("received: %d %d %d %d\n", in[0], in[1], in[2], in[3]);
    SHOW(pvm_psend(me, 9, values, 4, PVM_INT));
    SHOW(pvm_precv(me, 9, in, 4, PVM_STR, NULL, NULL, NULL));
    SHOW(pvm_precv(me, 9, in, 4, 99, NULL, NULL, NULL));
    pvm_setopt(PvmAutoErr, 0);
    SHOW(pvm_precv(me, 9, in, -4, PVM_INT, NULL, NULL, &length));
    SHOW(length);
    pvm_exit();
    return 0;
}
