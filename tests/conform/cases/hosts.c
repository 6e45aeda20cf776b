/* pvm_config, pvm_mstat, pvm_archcode, pvm_tidtohost, pvm_hostsync, and host changes that fail. */
//@ fresh
#include "case.h"

int main(void)
{
    struct pvmhostinfo *hosts;
    int count = -1, formats = -1, me, status[3] = {-99, -99, -99};
    char here[256], *names[3];
    struct timeval clock, delta;
    case_begin();
    me = pvm_mytid();
    SHOW(pvm_config(&count, &formats, &hosts));
    SHOW(count);
    SHOW(formats);
    gethostname(here, sizeof here);
    SHOW_HEX(hosts[0].hi_tid);
    SHOW(strcmp(hosts[0].hi_name, here));
    SHOW_TEXT(hosts[0].hi_arch);
    SHOW(hosts[0].hi_speed);
    SHOW_HEX(hosts[0].hi_dsig);
    SHOW(pvm_config(NULL, NULL, NULL));
    SHOW(pvm_mstat(here));
    SHOW(pvm_mstat("."));
    SHOW(pvm_mstat("no-such-host"));
    SHOW(pvm_mstat(""));
    SHOW(pvm_mstat(NULL));
    SHOW_HEX(pvm_archcode("LINUX64"));
    SHOW(pvm_archcode("NOARCH"));
    SHOW(pvm_archcode(""));
    SHOW(pvm_archcode(NULL));
    SHOW_HEX(pvm_tidtohost(me));
    SHOW_HEX(pvm_tidtohost(0));
    SHOW_HEX(pvm_tidtohost(0x80042345));
    SHOW_HEX(pvm_tidtohost(-1));
    SHOW(pvm_hostsync(pvm_tidtohost(me), &clock, &delta));
    SHOW(clock.tv_sec > 1000000000 && clock.tv_usec >= 0 && clock.tv_usec < 1000000);
    SHOW(delta.tv_sec >= -1 && delta.tv_sec <= 0 && delta.tv_usec >= 0 && delta.tv_usec < 1000000);
    SHOW(pvm_hostsync(me, &clock, &delta));
    pvm_setopt(PvmAutoErr, 0);
    SHOW(pvm_hostsync(0, &clock, &delta));
    SHOW(pvm_hostsync(0x3ffc0000, &clock, &delta));
    pvm_setopt(PvmAutoErr, 1);
    SHOW(pvm_hostsync(pvm_tidtohost(me), NULL, NULL));
    names[0] = "no-such-host";
    names[1] = here;
    names[2] = "no-such-host";
    SHOW(pvm_addhosts(names, 0, status));
    SHOW(pvm_addhosts(names, -1, status));
    SHOW(pvm_addhosts(names, 4096, status));
    SHOW(pvm_delhosts(names, 0, status));
    SHOW(pvm_delhosts(names, -1, status));
    SHOW(pvm_delhosts(names, 3, status));
    printf("%d %d %d\n", status[0], status[1], status[2]);
    SHOW(pvm_delhosts(names, 1, NULL));
    SHOW(pvm_mstat(here));
    pvm_exit();
    return 0;
}
