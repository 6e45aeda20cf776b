/* Functions that third-party programs import although no manual mentions them. */
#include "case.h"

extern char *pvm_version(void);
extern int pvmsettaskname(char *name);
extern int pvmupkstralloc(char **text);

int main(void)
{
    struct timeval now, real;
    int found = -1;
    struct pvmtaskinfo *tasks;
    char *text = NULL;
    case_begin();
    SHOW_TEXT(pvm_version());
    SHOW(strcmp(pvmgettmp(), getenv("PVM_TMP")));
    SHOW(pvmgetclock(&now));
    gettimeofday(&real, NULL);
    SHOW(labs((long)(real.tv_sec - now.tv_sec)) <= 1 && now.tv_usec >= 0 && now.tv_usec < 1000000);
    SHOW(pvmsleep(1));
    SHOW_TEXT(pvmnametag(0, &found));
    SHOW(found);
    SHOW_TEXT(pvmnametag(4711, &found));
    SHOW(found);
    SHOW_TEXT(pvmnametag(-5, &found));
    SHOW(found);
    SHOW_TEXT(pvmnametag(0x80010001, &found));
    SHOW(found);
    SHOW_TEXT(pvmnametag(0x8001000a, NULL));
    SHOW_TEXT(pvmnametag(0x80020001, &found));
    SHOW_TEXT(pvmnametag(0x80030001, &found));
    SHOW_TEXT(pvmnametag(0x80030005, &found));
    SHOW_TEXT(pvmnametag(0x80040001, &found));
    SHOW_TEXT(pvmnametag(0x80040002, &found));
    SHOW_TEXT(pvmnametag(0x80050001, &found));
    SHOW(pvmsettaskname("named"));
    pvm_mytid();
    pvm_tasks(pvm_mytid(), NULL, &tasks);
    SHOW_TEXT(tasks[0].ti_a_out);
    SHOW(pvmsettaskname("too late"));
    pvm_initsend(PvmDataDefault);
    pvm_pkstr("of any length");
    pvm_send(pvm_mytid(), 1);
    case_own(1);
    SHOW(pvmupkstralloc(&text));
    SHOW_TEXT(text);
    SHOW(pvmupkstralloc(&text));
    pvm_exit();
    return 0;
}
