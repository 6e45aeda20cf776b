/* The data symbols, as seen by a program that has copies of them. */
#include "check.h"
#include <pvmtev.h>

extern int pvmautoerr, pvmmytid, pvmmyptid, pvmmyctx, pvmrouteopt, pvmshowtaskid, pvm_nerr;
extern char *pvm_errlist[];
extern struct Pvmtracer pvmctrc;
extern struct Pvmtevinfo pvmtevinfo[];

int main(void)
{
    int ctx;

    CHECK(pvmmytid == -1 && pvmmyptid == -1 && pvmautoerr == 1 && pvmrouteopt == 2 && pvm_nerr == 37);
    CHECK(pvm_mytid() == pvmmytid && pvmmyptid == 0);
    CHECK(strcmp(pvm_errlist[14], "Can't contact local daemon") == 0);
    CHECK(strcmp(pvmtevinfo[TEV_SEND].name, "send") == 0);
    pvmautoerr = 0; /* the program itself switches the printing of errors off */
    CHECK(pvm_getopt(PvmAutoErr) == 0);
    CHECK(pvm_send(-5, 1) == PvmBadParam && pvm_errno == PvmBadParam);
    pvm_errno = 0;
    CHECK(pvm_mkbuf(99) == PvmBadParam && pvm_errno == PvmBadParam);
    ctx = pvm_newcontext();
    pvm_setcontext(ctx);
    CHECK(pvmmyctx == ctx);
    CHECK(pvm_setopt(PvmRoute, PvmRouteDirect) == 2 && pvmrouteopt == 3);
    CHECK(pvm_setopt(PvmOutputTid, pvmmytid) == 0 && pvmctrc.outtid == pvmmytid);
    CHECK(pvm_setopt(PvmShowTids, 0) == 1 && pvmshowtaskid == 0);
    CHECK(pvm_exit() == 0 && pvmmytid == -1);
    return 0;
}
