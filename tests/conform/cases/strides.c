/* Strides of pack and unpack: gaps, zero, negative, pairs. */
#include "case.h"

static void show(const char *name, const int *values, int count)
{
    int i;
    printf("%s:", name);
    for (i = 0; i < count; i++)
        printf(" %d", values[i]);
    printf("\n");
}

int main(void)
{
    int encoding, i, bytes;
    case_begin();
    for (encoding = 0; encoding < 2; encoding++) {
        int out[12], in[12];
        float pairs[12], back[12];
        char letters[13] = "abcdefghijkl", read[13] = "............";
        double numbers[6], got[6] = {0};
        for (i = 0; i < 12; i++)
            out[i] = i, in[i] = -1, pairs[i] = i, back[i] = -1;
        for (i = 0; i < 6; i++)
            numbers[i] = i / 2.0;
        pvm_initsend(encoding);
        SHOW(pvm_pkint(out, 4, 3));
        SHOW(pvm_pkint(out + 11, 3, -2));
        SHOW(pvm_pkint(out + 5, 3, 0));
        SHOW(pvm_pkcplx(pairs, 3, 2));
        SHOW(pvm_pkbyte(letters, 6, 2));
        SHOW(pvm_pkdouble(numbers, 3, 2));
        pvm_send(pvm_mytid(), 1);
        case_own(1);
        pvm_bufinfo(pvm_getrbuf(), &bytes, NULL, NULL);
        SHOW(bytes);
        SHOW(pvm_upkint(in, 4, 2));
        show("unpacked with stride 2", in, 12);
        SHOW(pvm_upkint(in + 11, 3, -1));
        show("unpacked with stride -1", in, 12);
        SHOW(pvm_upkint(in, 3, 0));
        show("unpacked with stride 0", in, 12);
        SHOW(pvm_upkcplx(back, 3, 1));
        printf("pairs: %g %g %g %g %g %g\n", back[0], back[1], back[2], back[3], back[4], back[5]);
        SHOW(pvm_upkbyte(read, 6, 2));
        printf("letters: %s\n", read);
        SHOW(pvm_upkdouble(got, 3, 2));
        printf("numbers: %g %g %g %g %g\n", got[0], got[1], got[2], got[3], got[4]);
    }
    pvm_exit();
    return 0;
}
