/* What unpacking allows: other counts per call, other types, and partial results past the end. */
#include "case.h"

static void get(void)
{
    pvm_send(pvm_mytid(), 1);
    case_own(1);
}

int main(void)
{
    int out[4] = {1, 70000, -3, 4}, in[6] = {-1, -1, -1, -1, -1, -1}, encoding;
    short narrow[4] = {0};
    unsigned u = 0;
    char text[32];
    case_begin();
    pvm_mytid();
    pvm_setopt(PvmAutoErr, 0);
    for (encoding = 0; encoding < 2; encoding++) {
        pvm_initsend(encoding);
        pvm_pkint(out, 4, 1);
        get();
        SHOW(pvm_upkint(in, 1, 1));
        SHOW(pvm_upkint(in + 1, 2, 1));
        printf("%d %d %d %d\n", in[0], in[1], in[2], in[3]);
        SHOW(pvm_upkint(in + 3, 3, 1)); /* only one of the three items is left */
        printf("%d %d %d\n", in[3], in[4], in[5]);
        SHOW(pvm_upkint(in, 1, 1));
        SHOW(pvm_upkint(in, 0, 1));
        pvm_send(pvm_mytid(), 2);
        case_own(2);
        SHOW(pvm_upkshort(narrow, 3, 1));
        if (encoding == PvmDataDefault)
            printf("narrowed: %d %d %d\n", narrow[0], narrow[1], narrow[2]);
        SHOW(pvm_upkuint(&u, 1, 1));
    }
    pvm_initsend(PvmDataDefault);
    pvm_pkstr("hello");
    pvm_pkbyte("abc", 3, 1);
    pvm_pkbyte("defgh", 5, 1);
    get();
    SHOW(pvm_upkstr(text));
    SHOW_TEXT(text);
    memset(text, 0, sizeof text);
    SHOW(pvm_upkbyte(text, 3, 1));
    SHOW_TEXT(text);
    SHOW(pvm_upkbyte(text, 5, 1));
    SHOW_TEXT(text);
    SHOW(pvm_upkbyte(text, 1, 1));
    SHOW(pvm_upkstr(text));
    pvm_initsend(PvmDataDefault);
    get();
    SHOW(pvm_upkint(in, 1, 1));
    SHOW(pvm_upkint(in, 0, 1));
    pvm_exit();
    return 0;
}
