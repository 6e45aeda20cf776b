/* Errors of packing and unpacking: no buffer, negative counts, unpacking past the end. */
#include "case.h"

#define TYPE(T, suffix)                                                                            \
    do {                                                                                           \
        static T data[4];                                                                          \
        pvm_setsbuf(0);                                                                            \
        pvm_setrbuf(0);                                                                            \
        SHOW(pvm_pk##suffix(data, 1, 1));                                                          \
        SHOW(pvm_upk##suffix(data, 1, 1));                                                         \
        pvm_initsend(PvmDataDefault);                                                              \
        SHOW(pvm_pk##suffix(data, -1, 1));                                                         \
        SHOW(pvm_pk##suffix(NULL, 0, 1));                                                          \
        pvm_send(pvm_mytid(), 3);                                                                  \
        case_own(3);                                                                               \
        SHOW(pvm_upk##suffix(data, -1, 1));                                                        \
        SHOW(pvm_upk##suffix(data, 0, 1));                                                         \
        SHOW(pvm_upk##suffix(data, 1, 1));                                                         \
        pvm_initsend(PvmDataInPlace);                                                              \
        SHOW(pvm_pk##suffix(data, 2, 2));                                                          \
        SHOW(pvm_pk##suffix(data, -1, 1));                                                         \
        SHOW(pvm_pk##suffix(data, 0, 1));                                                          \
    } while (0)

int main(void)
{
    char text[8];
    case_begin();
    pvm_setopt(PvmAutoErr, 0);
    TYPE(char, byte);
    TYPE(short, short);
    TYPE(unsigned short, ushort);
    TYPE(int, int);
    TYPE(unsigned, uint);
    TYPE(long, long);
    TYPE(unsigned long, ulong);
    TYPE(float, float);
    TYPE(double, double);
    TYPE(float, cplx);
    TYPE(double, dcplx);
    pvm_setsbuf(0);
    pvm_setrbuf(0);
    SHOW(pvm_pkstr("x"));
    SHOW(pvm_upkstr(text));
    pvm_initsend(PvmDataInPlace);
    SHOW(pvm_pkstr("x"));
    SHOW(pvm_errno);
    pvm_exit();
    return 0;
}
