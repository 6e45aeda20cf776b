/* pvm_config, pvm_mstat, pvm_tidtohost, pvm_archcode on a machine of four hosts. */
//@ differs D25: pvm_mstat("delta.hpvm.test"): -6 => pvm_mstat("delta.hpvm.test"): 0
//@ differs D25: pvm_mstat("10.77.0.2"): -6 => pvm_mstat("10.77.0.2"): 0
#include "hosts.h"

int main(void)
{
    struct pvmhostinfo *hosts;
    int count = -1, formats = -1, i, me;
    case_begin();
    me = pvm_mytid();
    SHOW(pvm_config(&count, &formats, &hosts));
    SHOW(count);
    SHOW(formats);
    for (i = 0; i < count; i++)
        printf("%s %x %s %d %x\n", hosts[i].hi_name, hosts[i].hi_tid, hosts[i].hi_arch, hosts[i].hi_speed,
               hosts[i].hi_dsig);
    SHOW(pvm_mstat("alfa"));
    SHOW(pvm_mstat("delta"));
    SHOW(pvm_mstat("."));
    SHOW(pvm_mstat("delta.hpvm.test"));
    SHOW(pvm_mstat("10.77.0.2"));
    SHOW(pvm_mstat("echo"));
    SHOW_HEX(pvm_tidtohost(me));
    SHOW_HEX(pvm_tidtohost(0xc0001));
    SHOW_HEX(pvm_archcode("LINUX64"));
    pvm_exit();
    return 0;
}
