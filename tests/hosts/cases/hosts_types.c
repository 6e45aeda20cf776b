/* Every type and stride, packed in each encoding on one host and unpacked on another. */
#include "hosts.h"

#define COUNT 20

struct all {
    char byte[200];
    short sh[200];
    unsigned short ush[200];
    int in[200];
    unsigned int uin[200];
    long lo[200];
    unsigned long ulo[200];
    float fl[400];
    double db[400];
    char text[100];
};

static struct all mine, theirs;

static void fill(struct all *all, int seed)
{
    int i;
    for (i = 0; i < 200; i++) {
        all->byte[i] = (char)(i * 3 + seed);
        all->sh[i] = (short)(i * 331 - 20000 + seed);
        all->ush[i] = (unsigned short)(i * 300 + seed);
        all->in[i] = i * 10000019 - 1000000000 + seed;
        all->uin[i] = 4000000000u - i * 10000019u + seed;
        /* In its default encoding, PVM 3.4.6 keeps only 32 bits of a long, without the sign (D1). */
        all->lo[i] = i * 10000019L + seed;
        all->ulo[i] = 2000000000UL - i * 1000003UL + seed;
    }
    for (i = 0; i < 400; i++) {
        all->fl[i] = (float)(i * 1.5 - 100.25 + seed);
        all->db[i] = i * 1e100 - 0.1 * seed;
    }
    snprintf(all->text, sizeof all->text, "text number %d", seed);
}

static int first_error;

static void note(int result)
{
    if (result < 0 && !first_error)
        first_error = result;
}

static void pack(struct all *all, int stride)
{
    note(pvm_pkbyte(all->byte, COUNT, stride));
    note(pvm_pkshort(all->sh, COUNT, stride));
    note(pvm_pkushort(all->ush, COUNT, stride));
    note(pvm_pkint(all->in, COUNT, stride));
    note(pvm_pkuint(all->uin, COUNT, stride));
    note(pvm_pklong(all->lo, COUNT, stride));
    note(pvm_pkulong(all->ulo, COUNT, stride));
    note(pvm_pkfloat(all->fl, COUNT, stride));
    note(pvm_pkdouble(all->db, COUNT, stride));
    note(pvm_pkcplx(all->fl, COUNT, stride));
    note(pvm_pkdcplx(all->db, COUNT, stride));
    note(pvm_pkstr(all->text));
}

static void unpack(struct all *all, int stride)
{
    note(pvm_upkbyte(all->byte, COUNT, stride));
    note(pvm_upkshort(all->sh, COUNT, stride));
    note(pvm_upkushort(all->ush, COUNT, stride));
    note(pvm_upkint(all->in, COUNT, stride));
    note(pvm_upkuint(all->uin, COUNT, stride));
    note(pvm_upklong(all->lo, COUNT, stride));
    note(pvm_upkulong(all->ulo, COUNT, stride));
    note(pvm_upkfloat(all->fl, COUNT, stride));
    note(pvm_upkdouble(all->db, COUNT, stride));
    note(pvm_upkcplx(all->fl, COUNT, stride));
    note(pvm_upkdcplx(all->db, COUNT, stride));
    note(pvm_upkstr(all->text));
}

#define SAME(field, stride)                                                                        \
    for (i = 0; i < COUNT; i++)                                                                    \
        if (got.field[i * (stride)] != want.field[i * (stride)])                                   \
    different |= 1 << bit;                                                                         \
    bit++

static int differences(int stride, int seed)
{
    static struct all want, got;
    int i, bit = 0, different = 0;
    fill(&want, seed);
    memset(&got, 0, sizeof got);
    got = theirs;
    SAME(byte, stride);
    SAME(sh, stride);
    SAME(ush, stride);
    SAME(in, stride);
    SAME(uin, stride);
    SAME(lo, stride);
    SAME(ulo, stride);
    SAME(fl, stride);
    SAME(db, stride);
    SAME(fl, 2 * stride);
    SAME(db, 2 * stride);
    if (strcmp(got.text, want.text) != 0)
        different |= 1 << bit;
    return different;
}

int main(int argc, char **argv)
{
    static const int strides[] = {1, 2, 3, 7}, routes[] = {PvmDontRoute, PvmRouteDirect};
    int encoding, s, r, tid, stride, seed, found;
    case_begin();
    if (argc > 1) {
        while (pvm_recv(pvm_parent(), -1) > 0) {
            pvm_upkint(&stride, 1, 1);
            pvm_upkint(&seed, 1, 1);
            if (!stride)
                break;
            memset(&theirs, 0, sizeof theirs);
            first_error = 0;
            unpack(&theirs, stride);
            found = differences(stride, seed);
            pvm_initsend(PvmDataDefault);
            pvm_pkint(&found, 1, 1);
            pvm_pkint(&first_error, 1, 1);
            pvm_send(pvm_parent(), 2);
        }
        pvm_exit();
        return 0;
    }
    pvm_mytid();
    tid = spawn_on("delta", "unpacker");
    for (r = 0; r < 2; r++) {
        pvm_setopt(PvmRoute, routes[r]);
        for (encoding = PvmDataDefault; encoding <= PvmDataInPlace; encoding++) {
            for (s = 0; s < 4; s++) {
                seed = encoding * 10 + s;
                first_error = 0;
                stride = strides[s];
                fill(&mine, seed);
                pvm_initsend(encoding);
                pvm_pkint(&stride, 1, 1);
                pvm_pkint(&seed, 1, 1);
                pack(&mine, stride);
                found = pvm_send(tid, 1);
                printf("route %d encoding %d stride %d: packed %d sent %d", routes[r], encoding, stride, first_error,
                       found);
                if (case_receive(tid, 2, PATIENCE) <= 0) {
                    printf(" no answer\n");
                    continue;
                }
                pvm_upkint(&found, 1, 1);
                pvm_upkint(&first_error, 1, 1);
                printf(" unpacked %d different %x\n", first_error, found);
            }
        }
    }
    stride = 0;
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&stride, 1, 1);
    pvm_pkint(&stride, 1, 1);
    pvm_send(tid, 1);
    pvm_exit();
    return 0;
}
