/* pvm_packf and pvm_unpackf. */
//@ differs D1: bytes: 8 => bytes: 16
#include "case.h"

static int vpack(const char *format, ...)
{
    va_list list;
    int result;
    va_start(list, format);
    result = pvm_vpackf(format, list);
    va_end(list);
    return result;
}

static int vunpack(const char *format, ...)
{
    va_list list;
    int result;
    va_start(list, format);
    result = pvm_vunpackf(format, list);
    va_end(list);
    return result;
}

static void send_back(void)
{
    int bytes = -1;
    pvm_send(pvm_mytid(), 1);
    case_own(1);
    pvm_bufinfo(pvm_getrbuf(), &bytes, NULL, NULL);
    SHOW(bytes);
}

int main(void)
{
    int i = 0, array[6] = {1, 2, 3, 4, 5, 6}, in[6] = {0}, encoding;
    short s = 0;
    long l = 0;
    unsigned u = 0;
    float f = 0, pair[2] = {1, 2}, pair_in[2];
    double d = 0, big[2] = {3, 4}, big_in[2];
    char c = 0, text[32] = "", bytes[4] = "";
    case_begin();
    pvm_mytid();
    SHOW(pvm_packf("%d", 1));
    SHOW(pvm_unpackf("%d", &i));
    for (encoding = 0; encoding < 2; encoding++) {
        SHOW(pvm_packf("%+ %c %hd %d %ud %f %lf %s", encoding, 'x', -7, 42, 4000000000u, 1.5, 2.25, "words"));
        send_back();
        SHOW(pvm_unpackf("%c %hd %d %ud %f %lf %s", &c, &s, &i, &u, &f, &d, text));
        printf("%c %d %d %u %g %g %s\n", c, s, i, u, f, d, text);
        SHOW(pvm_packf("%+%3d%*d%2.2d%*.*d", encoding, array, 2, array + 3, array, 2, 3, array));
        send_back();
        SHOW(pvm_unpackf("%6d", in));
        printf("%d %d %d %d %d %d\n", in[0], in[1], in[2], in[3], in[4], in[5]);
        SHOW(pvm_unpackf("%1d %*d", &in[0], 2, &in[1]));
        printf("%d %d %d\n", in[0], in[1], in[2]);
        SHOW(pvm_unpackf("%d", &i));
        SHOW(pvm_packf("%+ %1x %1lx %4c", encoding, pair, big, "abcd"));
        send_back();
        SHOW(pvm_unpackf("%x %lx %4c", pair_in, big_in, bytes));
        printf("%g %g %g %g %.4s\n", pair_in[0], pair_in[1], big_in[0], big_in[1], bytes);
        SHOW(pvm_packf("%+ %ld %lud", encoding, 7L, 8UL));
        send_back();
        SHOW(pvm_unpackf("%ld", &l));
        SHOW((int)l);
        SHOW(vpack("%+ literal text %d, %d", encoding, 5, 6));
        send_back();
        SHOW(vunpack("anything %d at all %d", &in[0], &in[1]));
        printf("%d %d\n", in[0], in[1]);
    }
    SHOW(pvm_packf("%+ %d %q %d", PvmDataDefault, 1, 2, 3));
    send_back();
    SHOW(pvm_packf("%d %+", 1, 2));
    pvm_setopt(PvmAutoErr, 0); /* PVM prints the error once for each function in the call chain */
    SHOW(pvm_packf("%+", 9));
    pvm_setopt(PvmAutoErr, 1);
    SHOW(pvm_packf("%+ %-1d", PvmDataDefault, array));
    SHOW(pvm_packf("%"));
    SHOW(pvm_packf(""));
    SHOW(pvm_packf("no items"));
    SHOW(pvm_unpackf("%q", &i));
    pvm_exit();
    return 0;
}
