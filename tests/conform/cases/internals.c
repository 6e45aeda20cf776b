/* Functions that are imported by PVM's own tasker, hoster and console, and by bindings to other languages. */
#include "case.h"
#include <sys/wait.h>

extern int pvmendtask(void);
extern int pvmputenv(char *text);
extern int pvmstrtoi(char *text);
extern void pvmchkuid(int user);
extern void pvmbailout(int code);
extern int pvmlogperror(char *text);
extern int pvmreset(int own, int kill, char *class, int index);
extern void *pvm_inprecv;
extern int pvmmytid;

static void environment(void)
{
    static char first[] = "CASE_VARIABLE=first", second[] = "CASE_VARIABLE=second=2";
    SHOW(pvmputenv(first));
    SHOW_TEXT(getenv("CASE_VARIABLE"));
    first[14] = 'F';
    SHOW_TEXT(getenv("CASE_VARIABLE"));
    SHOW(pvmputenv(second));
    SHOW_TEXT(getenv("CASE_VARIABLE"));
    SHOW(pvmputenv("CASE_VARIABLE"));
    SHOW(pvmputenv("=nothing"));
    SHOW(pvmputenv(""));
    SHOW(pvmputenv(NULL));
    SHOW(pvmputenv("CASE_EMPTY="));
    SHOW_TEXT(getenv("CASE_EMPTY"));
    SHOW_TEXT(getenv("CASE_VARIABLE"));
}

static void numbers(void)
{
    SHOW(pvmstrtoi("4711"));
    SHOW(pvmstrtoi("0x7fF"));
    SHOW(pvmstrtoi("0X10rest"));
    SHOW(pvmstrtoi("017"));
    SHOW(pvmstrtoi("0"));
    SHOW(pvmstrtoi("12x"));
    SHOW(pvmstrtoi(""));
    SHOW(pvmstrtoi("x"));
}

/* Does what misc/pvm_fork.c does: the child becomes a task of its own, and the parent notices
 * nothing. */
static void forking(int me)
{
    int status = 0, tid = 0, id = fork();
    if (id == 0) {
        pvm_setopt(PvmAutoErr, 0); /* 3.4.6 reports that handlers exist already */
        SHOW(pvmendtask());
        SHOW(pvmmytid);
        SHOW(pvm_mytid() != me && pvm_mytid() > 0);
        tid = pvm_mytid();
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&tid, 1, 1);
        status = pvm_send(me, 5) == PvmOk && case_receive(me, 6, 5) > 0 ? 0 : 1;
        pvm_exit();
        _exit(status);
    }
    SHOW(case_receive(-1, 5, 5) > 0);
    pvm_upkint(&tid, 1, 1);
    SHOW(case_signal(tid, 6));
    waitpid(id, &status, 0);
    SHOW(status);
    SHOW(pvm_mytid() == me);
    SHOW(pvm_pstat(me));
}

/* Does what a tasker does: the child leaves PVM before it becomes another program. */
static void executing(int me)
{
    int status = 0, id = fork();
    if (id == 0) {
        pvmendtask();
        pvmputenv("CASE_CHILD=from the tasker");
        execl("/bin/sh", "sh", "-c", "echo \"$CASE_CHILD\"", (char *)0);
        _exit(1);
    }
    waitpid(id, &status, 0);
    SHOW(status);
    SHOW(pvm_pstat(me));
}

int main(int argc, char **argv)
{
    int me, again, children[3], entries = -1;
    struct pvmmboxinfo *classes;
    case_begin();
    me = pvm_mytid();
    if (argc > 1) {
        if (argv[1][0] == 's')
            pvm_setopt(PvmNoReset, 1);
        case_signal(pvm_parent(), 1);
        pvm_recv(-1, 99);
    }
    SHOW(pvm_inprecv == NULL);
    environment();
    numbers();
    pvmchkuid(getuid());
    pvmbailout(0);
    errno = ENOENT;
    SHOW(pvmlogperror("what failed"));
    forking(me);
    executing(me);

    /* All tasks end, except this one and those that have set PvmNoReset. */
    SHOW(case_spawn("plain", 2, children));
    SHOW(case_spawn("spared", 1, children + 2));
    SHOW(case_receive(children[0], 1, 10) > 0);
    SHOW(case_receive(children[1], 1, 10) > 0);
    SHOW(case_receive(children[2], 1, 10) > 0);
    pvm_notify(PvmTaskExit, 7, 2, children);
    SHOW(pvmreset(me, 1, NULL, -1));
    SHOW(case_receive(-1, 7, 10) > 0);
    SHOW(case_receive(-1, 7, 10) > 0);
    SHOW(pvm_pstat(children[2]));
    SHOW(pvm_kill(children[2]));
    case_gone(children[2]);

    /* Entries whose owner has ended are removed: of one class, or of all classes. */
    pvm_initsend(PvmDataDefault);
    SHOW(pvm_putinfo("kept", pvm_getsbuf(), PvmMboxPersistent));
    SHOW(pvm_putinfo("left", pvm_getsbuf(), PvmMboxPersistent));
    pvm_setopt(PvmAutoErr, 0);
    SHOW(pvmendtask());
    SHOW(pvmmytid);
    SHOW(pvmendtask());
    again = pvm_mytid();
    SHOW(again != me && again > 0);
    SHOW(pvmreset(again, 0, "left", -1));
    pvm_getmboxinfo("left", &entries, &classes);
    SHOW(entries);
    pvm_getmboxinfo("kept", &entries, &classes);
    SHOW(entries);
    SHOW(pvmreset(again, 0, NULL, -1));
    pvm_getmboxinfo("kept", &entries, &classes);
    SHOW(entries);
    pvm_exit();
    return 0;
}
