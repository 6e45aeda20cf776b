/* Data symbols: their values before and after enrollment. */
#include "case.h"

extern int pvm_useruid, pvmautoerr, pvmmytid, pvmmyptid, pvmmyupid, pvmmyctx, pvmmydsig, pvmrouteopt, pvmfrgsiz,
    pvmudpmtu, pvmrescode, pvmshowtaskid, pvmdebmask, pvmnoreset, pvmnoresetindex, pvmnsibs, pvmschedtid;
extern int *pvmsibtids;
extern void *pvmrbuf, *pvmsbuf, *pvmrxlist;
extern struct {
    int trctid, trcctx, trctag, outtid, outctx, outtag, trcbuf, trcopt;
    Pvmtmask tmask;
} pvmctrc, pvmtrc;

static void show(void)
{
    SHOW(pvm_errno);
    SHOW(pvmautoerr);
    SHOW_TID(pvmmytid);
    SHOW(pvmmyptid);
    SHOW(pvmmyupid > 0 ? pvmmyupid == getpid() : pvmmyupid);
    SHOW(pvmmyctx);
    SHOW(pvmrouteopt);
    SHOW(pvmfrgsiz);
    SHOW(pvmudpmtu);
    SHOW(pvmrescode);
    SHOW(pvmshowtaskid);
    SHOW(pvmdebmask);
    SHOW(pvmnoreset);
    SHOW(pvmnoresetindex);
    SHOW(pvmnsibs);
    SHOW(pvmschedtid);
    SHOW(pvmsibtids != NULL);
    SHOW(pvmctrc.outtid);
    SHOW(pvmctrc.trctid);
    SHOW(pvmtrc.outtid);
}

int main(void)
{
    case_begin();
    SHOW(pvm_useruid);
    SHOW_HEX(pvmmydsig);
    show();
    pvm_mytid();
    SHOW_HEX(pvmmydsig);
    SHOW(pvm_useruid == (int)geteuid());
    pvm_errno = 0;
    pvm_setcontext(4);
    SHOW(pvmmyctx);
    pvm_setcontext(0);
    pvm_setopt(PvmOutputTid, pvm_mytid());
    pvm_setopt(PvmOutputCode, 8);
    SHOW(pvmctrc.outtid == pvm_mytid());
    SHOW(pvmctrc.outtag);
    pvm_setopt(PvmOutputTid, 0);
    pvm_setopt(PvmRoute, PvmDontRoute);
    SHOW(pvmrouteopt);
    show();
    pvm_exit();
    SHOW(pvmmytid);
    return 0;
}
