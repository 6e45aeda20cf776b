/* D1: a long keeps all its bits in the default encoding. */
//@ differs D1: default long: -1 -> 4294967295 => default long: -1 -> -1
//@ differs D1: default long: 78187493530 -> 878082202 => default long: 78187493530 -> 78187493530
//@ differs D1: default long: -9223372036854775808 -> 0 => default long: -9223372036854775808 -> -9223372036854775808
//@ differs D1: default ulong: 18446744073709551615 -> 4294967295 => default ulong: 18446744073709551615 -> 18446744073709551615
//@ differs D1: packf long: -5 -> 4294967291 => packf long: -5 -> -5
#include "case.h"
#include <limits.h>

static void through(int encoding, long value)
{
    long back = 0;
    pvm_initsend(encoding);
    pvm_pklong(&value, 1, 1);
    pvm_send(pvm_mytid(), 1);
    case_own(1);
    pvm_upklong(&back, 1, 1);
    printf("%s long: %ld -> %ld\n", encoding ? "raw" : "default", value, back);
}

static void unsigned_through(int encoding, unsigned long value)
{
    unsigned long back = 0;
    pvm_initsend(encoding);
    pvm_pkulong(&value, 1, 1);
    pvm_send(pvm_mytid(), 1);
    case_own(1);
    pvm_upkulong(&back, 1, 1);
    printf("%s ulong: %lu -> %lu\n", encoding ? "raw" : "default", value, back);
}

int main(void)
{
    long back = 0;
    int encoding;
    case_begin();
    for (encoding = 0; encoding < 2; encoding++) {
        through(encoding, 1);
        through(encoding, -1);
        through(encoding, 0x123456789aL);
        through(encoding, LONG_MIN);
        unsigned_through(encoding, ULONG_MAX);
    }
    SHOW(pvm_packf("%+ %ld", PvmDataDefault, -5L));
    pvm_send(pvm_mytid(), 2);
    case_own(2);
    SHOW(pvm_unpackf("%ld", &back));
    printf("packf long: -5 -> %ld\n", back);
    pvm_exit();
    return 0;
}
