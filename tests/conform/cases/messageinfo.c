/* getminfo and setminfo. */
#include "case.h"

static void show(const char *when, int message)
{
    struct pvmminfo info;
    memset(&info, 0x55, sizeof info);
    printf("%s: %d\n", when, pvm_getminfo(message, &info));
    printf("  len %d ctx %d tag %d wid %d enc %x crc %d src %d dst %d\n", info.len, info.ctx, info.tag, info.wid,
           info.enc, info.crc, info.src == pvm_mytid(), info.dst == pvm_mytid());
}

int main(void)
{
    struct pvmminfo info = {99, 98, 97, 96, 95, 94, 0, 0};
    int message, value = 3, read = 0;
    case_begin();
    pvm_mytid();
    SHOW(pvm_getminfo(-1, &info));
    SHOW(pvm_getminfo(0, &info));
    SHOW(pvm_getminfo(12345, &info));
    SHOW(pvm_setminfo(-1, &info));
    SHOW(pvm_setminfo(0, &info));
    SHOW(pvm_setminfo(12345, &info));
    message = pvm_initsend(PvmDataDefault);
    show("fresh", message);
    pvm_pkint(&value, 1, 1);
    show("packed", message);
    info.src = info.dst = pvm_mytid();
    SHOW(pvm_setminfo(message, &info));
    show("set", message);
    SHOW(pvm_send(pvm_mytid(), 4));
    show("sent", message);
    message = case_own(4);
    show("received", message);
    SHOW(pvm_upkint(&read, 1, 1));
    SHOW(read);
    show("unpacked", message);
    message = pvm_initsend(PvmDataRaw);
    show("raw", message);
    pvm_pkint(&value, 1, 1);
    SHOW(pvm_send(pvm_mytid(), 4));
    show("received raw", case_own(4));
    message = pvm_initsend(PvmDataInPlace);
    pvm_pkint(&value, 1, 1);
    show("in place", message);
    SHOW(pvm_send(pvm_mytid(), 4));
    show("received in place", case_own(4));
    pvm_exit();
    return 0;
}
