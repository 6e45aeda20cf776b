/* Every pack and unpack function with every encoding: the size, and the unpacked values. */
//@ differs D1: PvmDataDefault size of long: 12 => PvmDataDefault size of long: 24
//@ differs D1: PvmDataDefault size of ulong: 12 => PvmDataDefault size of ulong: 24
#include "case.h"

static const char *names[] = {"PvmDataDefault", "PvmDataRaw", "PvmDataInPlace"};

#define TYPE(name, T, suffix, per, format, ...)                                                    \
    static void test_##name(int encoding)                                                          \
    {                                                                                              \
        static T out[] = __VA_ARGS__;                                                              \
        T in[sizeof out / sizeof out[0]];                                                          \
        int count = sizeof out / sizeof out[0] / per, bytes, i;                                    \
        memset(in, 0, sizeof in);                                                                  \
        pvm_initsend(encoding);                                                                    \
        printf("%s pack %s: %d\n", names[encoding], #name, pvm_pk##suffix(out, count, 1));         \
        pvm_send(pvm_mytid(), 1);                                                                  \
        case_own(1);                                                                               \
        pvm_bufinfo(pvm_getrbuf(), &bytes, NULL, NULL);                                            \
        printf("%s size of %s: %d\n", names[encoding], #name, bytes);                              \
        printf("%s unpack %s: %d\n", names[encoding], #name, pvm_upk##suffix(in, count, 1));       \
        printf("%s %s:", names[encoding], #name);                                                  \
        for (i = 0; i < (int)(sizeof out / sizeof out[0]); i++)                                    \
            printf(" " format, in[i]);                                                             \
        printf("\n");                                                                              \
        printf("%s past the end of %s: %d\n", names[encoding], #name,                              \
               pvm_upk##suffix(in, 1, 1));                                                         \
    }

TYPE(byte, char, byte, 1, "%d", {1, -2, 127, -128, 5})
TYPE(short, short, short, 1, "%d", {1, -2, 32767, -32768, 5})
TYPE(ushort, unsigned short, ushort, 1, "%u", {1, 2, 32768, 65535, 5})
TYPE(int, int, int, 1, "%d", {1, -2, 2147483647, -2147483647 - 1, 5})
TYPE(uint, unsigned, uint, 1, "%u", {1, 2, 2147483648u, 4294967295u, 5})
TYPE(long, long, long, 1, "%ld", {1, 2147483647, 5})
TYPE(ulong, unsigned long, ulong, 1, "%lu", {1, 4294967295ul, 5})
TYPE(float, float, float, 1, "%g", {1.5f, -2.25f, 3e38f, 1e-40f, 0})
TYPE(double, double, double, 1, "%g", {1.5, -2.25, 1e308, 5e-324, 0})
TYPE(cplx, float, cplx, 2, "%g", {1.5f, -2.25f, 3, 4})
TYPE(dcplx, double, dcplx, 2, "%g", {1.5, -2.25, 3, 4})

static void test_string(int encoding, char *text)
{
    char in[64] = "untouched";
    int bytes;
    pvm_initsend(encoding);
    printf("%s pack string: %d\n", names[encoding], pvm_pkstr(text));
    pvm_send(pvm_mytid(), 1);
    case_own(1);
    pvm_bufinfo(pvm_getrbuf(), &bytes, NULL, NULL);
    printf("%s size of string: %d\n", names[encoding], bytes);
    printf("%s unpack string: %d\n", names[encoding], pvm_upkstr(in));
    printf("%s string: %s\n", names[encoding], in);
}

int main(void)
{
    int encoding;
    case_begin();
    for (encoding = 0; encoding < 3; encoding++) {
        test_byte(encoding);
        test_short(encoding);
        test_ushort(encoding);
        test_int(encoding);
        test_uint(encoding);
        test_long(encoding);
        test_ulong(encoding);
        test_float(encoding);
        test_double(encoding);
        test_cplx(encoding);
        test_dcplx(encoding);
        test_string(encoding, "");
        test_string(encoding, "abc");
        test_string(encoding, "a longer text");
    }
    pvm_exit();
    return 0;
}
