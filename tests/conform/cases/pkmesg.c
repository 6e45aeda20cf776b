/* Messages within messages. */
#include "case.h"

int main(void)
{
    int inner, outer, value = 11, second = 22, got = 0, tag = -1, bytes = -1, out;
    char text[16] = "";
    case_begin();
    pvm_mytid();
    pvm_setopt(PvmAutoErr, 1);
    SHOW(pvm_pkmesg(1));
    SHOW(pvm_pkmesgbody(1));
    SHOW(pvm_upkmesg());
    inner = pvm_initsend(PvmDataRaw);
    pvm_pkint(&value, 1, 1);
    pvm_pkstr("inside");
    SHOW(pvm_setsbuf(0) == inner);
    outer = pvm_initsend(PvmDataDefault);
    pvm_pkint(&second, 1, 1);
    SHOW(pvm_pkmesg(outer));
    SHOW(pvm_pkmesg(0));
    SHOW(pvm_pkmesg(-1));
    SHOW(pvm_pkmesg(9999));
    SHOW(pvm_pkmesg(inner));
    pvm_pkint(&second, 1, 1);
    SHOW(pvm_pkmesgbody(inner)); /* another encoding */
    SHOW(pvm_pkmesgbody(outer));
    SHOW(pvm_pkmesgbody(0));
    SHOW(pvm_pkmesgbody(9999));
    pvm_bufinfo(outer, &bytes, NULL, NULL);
    SHOW(bytes);
    pvm_send(pvm_mytid(), 4);
    case_own(4);
    pvm_upkint(&got, 1, 1);
    SHOW(got);
    out = pvm_upkmesg();
    SHOW(out > 0);
    SHOW(pvm_getrbuf() != out);
    pvm_upkint(&got, 1, 1);
    SHOW(got);
    SHOW(pvm_upkmesg());
    pvm_bufinfo(out, &bytes, &tag, NULL);
    SHOW(bytes);
    SHOW(tag);
    pvm_setrbuf(out);
    SHOW(pvm_upkint(&got, 1, 1));
    SHOW(got);
    SHOW(pvm_upkstr(text));
    SHOW_TEXT(text);
    outer = pvm_initsend(PvmDataRaw);
    pvm_pkint(&second, 1, 1);
    SHOW(pvm_pkmesgbody(inner));
    pvm_pkint(&second, 1, 1);
    pvm_bufinfo(outer, &bytes, NULL, NULL);
    SHOW(bytes);
    SHOW(pvm_freebuf(inner)); /* the body is shared, not borrowed */
    pvm_send(pvm_mytid(), 4);
    case_own(4);
    pvm_upkint(&got, 1, 1);
    SHOW(got);
    pvm_upkint(&got, 1, 1);
    SHOW(got);
    pvm_upkstr(text);
    SHOW_TEXT(text);
    SHOW(pvm_upkint(&got, 1, 1));
    SHOW(got);
    SHOW(pvm_upkint(&got, 1, 1));
    pvm_exit();
    return 0;
}
