/* Message buffers: making, freeing and activating them, and every error of these calls. */
#include "case.h"

int main(void)
{
    int a, b, bytes, tag, tid;
    case_begin();
    pvm_mytid();
    SHOW(pvm_getsbuf());
    SHOW(pvm_getrbuf());
    SHOW(pvm_freebuf(0));
    SHOW(pvm_freebuf(-1));
    SHOW(pvm_freebuf(99));
    SHOW(pvm_freebuf(100000));
    SHOW(pvm_mkbuf(-1));
    SHOW(pvm_mkbuf(3));
    SHOW(pvm_mkbuf(17));
    SHOW(pvm_initsend(-1));
    SHOW(pvm_initsend(3));
    a = pvm_mkbuf(PvmDataDefault);
    SHOW(a > 0);
    SHOW(pvm_getsbuf());
    SHOW(pvm_setsbuf(a));
    SHOW(pvm_getsbuf() == a);
    b = pvm_mkbuf(PvmDataRaw);
    SHOW(b > 0 && b != a);
    SHOW(pvm_setsbuf(b) == a);
    SHOW(pvm_setsbuf(-3));
    SHOW(pvm_setsbuf(12345));
    SHOW(pvm_setrbuf(-3));
    SHOW(pvm_setrbuf(12345));
    SHOW(pvm_getsbuf() == b);
    SHOW(pvm_setrbuf(b)); /* a buffer has only one role at a time */
    SHOW(pvm_getsbuf());
    SHOW(pvm_getrbuf() == b);
    SHOW(pvm_setsbuf(b));
    SHOW(pvm_getrbuf());
    SHOW(pvm_getsbuf() == b);
    SHOW(pvm_setsbuf(0) == b);
    SHOW(pvm_getsbuf());
    SHOW(pvm_bufinfo(b, &bytes, &tag, &tid));
    SHOW(bytes);
    SHOW(tag);
    SHOW(pvm_bufinfo(b, NULL, NULL, NULL));
    SHOW(pvm_bufinfo(0, &bytes, &tag, &tid));
    SHOW(pvm_bufinfo(-1, &bytes, &tag, &tid));
    SHOW(pvm_bufinfo(4711, &bytes, &tag, &tid));
    SHOW(pvm_freebuf(b));
    SHOW(pvm_freebuf(b));
    SHOW(pvm_mkbuf(PvmDataInPlace) == b); /* the number that was freed last is used first */
    SHOW(pvm_setsbuf(a));
    SHOW(pvm_freebuf(a));
    SHOW(pvm_getsbuf());
    a = pvm_initsend(PvmDataDefault);
    SHOW(pvm_getsbuf() == a);
    b = pvm_initsend(PvmDataRaw); /* frees the active buffer */
    SHOW(pvm_getsbuf() == b);
    SHOW(pvm_setrbuf(0));
    SHOW(pvm_errno);
    return 0;
}
