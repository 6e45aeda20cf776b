/* pvm_getopt tells how the last long message inside the host was copied. */
//@ fresh
//@ ours-only D3: skip
#include "case.h"

#define PvmCopyWay 1007
#define BYTES (64 << 10)

static char data[BYTES];

static int is_known(void)
{
    int way = pvm_getopt(PvmCopyWay);
    return way >= 1 && way <= 6;
}

int main(int argc, char **argv)
{
    int peer;
    (void)argv;
    case_begin();
    if (argc > 1) {
        pvm_precv(pvm_parent(), 1, data, BYTES, PVM_BYTE, NULL, NULL, NULL);
        case_signal(pvm_parent(), 2);
        pvm_recv(pvm_parent(), 1);
        case_signal(pvm_parent(), 2);
        pvm_exit();
        return 0;
    }
    SHOW(case_spawn_here("receive", 1, &peer));
    SHOW(pvm_getopt(PvmCopyWay));
    SHOW(pvm_psend(peer, 1, data, BYTES / 64, PVM_BYTE) == PvmOk ? pvm_getopt(PvmCopyWay) : -1);
    SHOW(case_receive(peer, 2, 5.0) > 0);
    pvm_initsend(PvmDataRaw);
    SHOW(pvm_pkbyte(data, BYTES, 1));
    SHOW(is_known());
    SHOW(pvm_send(peer, 1));
    SHOW(case_receive(peer, 2, 5.0) > 0);
    pvm_exit();
    return 0;
}
