/* Tests the data symbols of the library as a program sees them: their first values, and that the
 * library and a program with its own copy of them (by copy relocation) use the same memory. Needs
 * no daemon. Exits with the number of errors. */
#include <stdio.h>
#include <string.h>
#include <pvm3.h>
#include <pvmtev.h>

extern char *pvm_errlist[];
extern int pvm_nerr, pvm_useruid, pvmautoerr, pvmmytid, pvmmyptid, pvmmyupid, pvmmyctx, pvmmydsig, pvmrouteopt;
extern int pvmfrgsiz, pvmudpmtu, pvmrescode, pvmshowtaskid, pvmdebmask, pvmnoreset, pvmnoresetindex, pvmnsibs;
extern int *pvmsibtids, pvmschedtid;
extern void *pvmrbuf, *pvmsbuf, *pvmrxlist, *pvm_inprecv;
extern struct Pvmtracer pvmctrc, pvmtrc;
extern struct Pvmtevinfo pvmtevinfo[];
extern struct Pvmtevdid pvmtevdidlist[];

static int surprises;

static void check(int as_expected, const char *what)
{
    if (!as_expected) {
        printf("surprise: %s\n", what);
        surprises++;
    }
}

#define CHECK(condition) check((condition), #condition)

static void check_macros(void)
{
    CHECK(PvmMboxDirectIndex(3) == 3 << 10);
    CHECK(PvmMboxDirectIndex(2097151) == 2097151 << 10);
    CHECK(PvmMboxDirectIndexOf(PvmMboxDirectIndex(7) | PvmMboxPersistent) == 7);
}

static int is_zero(const void *memory, size_t bytes)
{
    const char *at = (const char *)memory;
    while (bytes > 0 && *at == 0) {
        at++;
        bytes--;
    }
    return bytes == 0;
}

static void check_first_values(void)
{
    CHECK(pvm_errno == 0);
    CHECK(pvm_nerr == 37);
    CHECK(pvm_useruid == -1);
    CHECK(pvmautoerr == 1);
    CHECK(pvmmytid == -1 && pvmmyptid == -1 && pvmmyupid == -1);
    CHECK(pvmmyctx == 0);
    CHECK(pvmmydsig == 0);
    CHECK(pvmrouteopt == PvmAllowDirect);
    CHECK(pvmfrgsiz == 4080 && pvmudpmtu == 4080);
    CHECK(pvmrescode == 0);
    CHECK(pvmshowtaskid == 1);
    CHECK(pvmdebmask == 0);
    CHECK(pvmnoreset == 0 && pvmnoresetindex == -1);
    CHECK(pvmnsibs == -1 && pvmsibtids == 0);
    CHECK(pvmschedtid == 0);
    CHECK(pvmrbuf == 0 && pvmsbuf == 0 && pvmrxlist == 0 && pvm_inprecv == 0);
    CHECK(is_zero(&pvmctrc, sizeof pvmctrc));
    CHECK(is_zero(&pvmtrc, sizeof pvmtrc));
}

static void check_tables(void)
{
    int index;

    CHECK(strcmp(pvm_errlist[0], "Error 0") == 0);
    CHECK(strcmp(pvm_errlist[-PvmBadParam], "Bad parameter") == 0);
    CHECK(strcmp(pvm_errlist[-PvmParentNotSet], "Spawning parent set PvmNoParent") == 0);
    CHECK(strcmp(pvm_errlist[36], "Master Host IP Address is Loopback! (See pvm3/Readme)") == 0);
    for (index = 0; index <= TEV_MAX; index++)
        CHECK(pvmtevinfo[index].name != 0 && pvmtevinfo[index].name[0] != 0);
    CHECK(strcmp(pvmtevinfo[TEV_ADDHOSTS].name, "addhosts") == 0);
    CHECK(strcmp(pvmtevinfo[TEV_RECV].name, "recv") == 0);
    CHECK(strcmp(pvmtevinfo[TEV_DELMHF].name, "delmhf") == 0);
    for (index = 0; index <= TEV_DID_MAX; index++)
        CHECK(pvmtevdidlist[index].did != 0 && pvmtevdidlist[index].desc != 0);
    CHECK(strcmp(pvmtevdidlist[TEV_DID_WID].did, "WID") == 0);
}

static void check_that_the_library_writes_them(void)
{
    CHECK(pvm_setopt(PvmAutoErr, 0) == 1 && pvmautoerr == 0);
    CHECK(pvm_freebuf(-1) == PvmBadParam && pvm_errno == PvmBadParam);
    CHECK(pvm_freebuf(12345) == PvmNoSuchBuf && pvm_errno == PvmNoSuchBuf);
    CHECK(pvm_setcontext(5) == 0 && pvmmyctx == 5);
    CHECK(pvm_setopt(PvmResvTids, 1) == 0 && pvmrescode == 1);
}

int main(void)
{
    check_macros();
    check_first_values();
    check_tables();
    check_that_the_library_writes_them();
    printf("%d surprises\n", surprises);
    return surprises != 0;
}
