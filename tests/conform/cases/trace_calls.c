/* Traces: the events of each call. The task is not a spawned one, so that PVM traces no calls inside the
 * library. */
//@ fresh
#include "trace.h"

static int matcher(int mid, int tid, int tag)
{
    return tid == -1 && tag == -1;
}

static void packing(void)
{
    static char bytes[8] = "abc";
    static float floats[8];
    static double doubles[8];
    static short shorts[8];
    static unsigned short ushorts[8];
    static int ints[8];
    static unsigned uints[8];
    char text[32];
    int me = pvm_mytid();
    pvm_initsend(PvmDataDefault);
    pvm_pkbyte(bytes, 3, 1);
    pvm_pkcplx(floats, 1, 1);
    pvm_pkdcplx(doubles, 1, 1);
    pvm_pkdouble(doubles, 2, 1);
    pvm_pkfloat(floats, 2, 1);
    pvm_pkint(ints, 3, 2);
    pvm_pkuint(uints, 1, 1);
    pvm_pkshort(shorts, 2, 1);
    pvm_pkushort(ushorts, 1, 1);
    pvm_pkstr("hello");
    pvm_packf("%d %s", 7, "words");
    pvm_pkint(ints, -1, 1);
    pvm_send(me, 3);
    case_own(3);
    pvm_upkbyte(bytes, 3, 1);
    pvm_upkcplx(floats, 1, 1);
    pvm_upkdcplx(doubles, 1, 1);
    pvm_upkdouble(doubles, 2, 1);
    pvm_upkfloat(floats, 2, 1);
    pvm_upkint(ints, 3, 2);
    pvm_upkuint(uints, 1, 1);
    pvm_upkshort(shorts, 2, 1);
    pvm_upkushort(ushorts, 1, 1);
    pvm_upkstr(text);
    pvm_unpackf("%d %s", ints, text);
    pvm_upkint(ints, 1, 1);
}

static void longs(void)
{
    long numbers[2] = {1, 2};
    unsigned long more[2] = {1, 2};
    pvm_initsend(PvmDataRaw);
    pvm_pklong(numbers, 2, 1);
    pvm_pkulong(more, 1, 1);
    pvm_upklong(numbers, 2, 1);
    pvm_upkulong(more, 1, 1);
}

static void messages(void)
{
    struct pvmminfo info;
    struct timeval limit = {0, 1000};
    int me = pvm_mytid(), x = 5, tag, tid, length, nobody = 0x40fff;
    pvm_mkbuf(PvmDataRaw);
    pvm_mkbuf(7);
    pvm_initsend(PvmDataDefault);
    pvm_send(-1, 3);
    pvm_send(nobody, 3);
    pvm_probe(-1, 99);
    pvm_nrecv(-1, 99);
    pvm_trecv(-1, 99, &limit);
    pvm_send(me, 4);
    pvm_recv(-1, 4);
    pvm_bufinfo(pvm_getrbuf(), &x, &tag, &tid);
    pvm_bufinfo(99, &x, &tag, &tid);
    pvm_getminfo(99, &info);
    pvm_getminfo(pvm_getsbuf(), &info);
    pvm_setminfo(pvm_getsbuf(), &info);
    pvm_freebuf(99);
    pvm_setsbuf(0);
    pvm_setrbuf(0);
    pvm_psend(me, 4, &x, 1, PVM_INT);
    pvm_precv(-1, 4, &x, 1, PVM_INT, &tid, &tag, &length);
    pvm_psend(me, 4, &x, 1, PVM_STR);
    pvm_initsend(PvmDataRaw);
    pvm_mcast(&nobody, 0, 5);
    pvm_mcast(&nobody, 1, 5);
    pvm_recvf(matcher);
    pvm_recvf(NULL);
}

static void machine(void)
{
    struct pvmhostinfo *hosts;
    struct pvmtaskinfo *tasks;
    char *names[2] = {"no.such.host", "another"};
    int me = pvm_mytid(), count, formats, codes[2], *list, nobody = 0x40fff, ask = 5, answers[10];
    pvm_parent();
    pvm_config(&count, &formats, &hosts);
    pvm_config(NULL, NULL, NULL);
    pvm_tasks(me, &count, &tasks);
    pvm_tasks(0x7000000, &count, &tasks);
    pvm_archcode("LINUX64");
    pvm_archcode("none");
    pvm_mstat("nobody");
    pvm_mstat(".");
    pvm_pstat(me);
    pvm_pstat(nobody);
    pvm_notify(PvmTaskExit, 6, 1, &nobody);
    pvm_notify(PvmHostAdd, 6, -1, NULL);
    pvm_notify(77, 6, 1, &nobody);
    pvm_recv(-1, 6);
    pvm_getopt(PvmRoute);
    pvm_getopt(99);
    pvm_setopt(PvmRoute, PvmDontRoute);
    pvm_setopt(99, 1);
    pvm_getfds(&list);
    pvm_delhosts(names, 2, codes);
    pvm_start_pvmd(0, NULL, 0);
    pvm_sendsig(nobody, 0);
    pvm_kill(nobody);
    pvm_kill(-1);
    pvm_tickle(1, &ask, &count, answers);
    pvm_reg_hoster();
    pvm_reg_hoster();
    pvm_reg_tasker();
    pvm_reg_tasker();
}

static void contexts(void)
{
    int context = pvm_newcontext();
    pvm_setcontext(context);
    pvm_getcontext();
    pvm_setcontext(0);
    pvm_freecontext(context);
    pvm_freecontext(12345);
}

static void mailboxes(void)
{
    struct pvmmboxinfo *boxes;
    int count, value;
    pvm_initsend(PvmDataDefault);
    pvm_putinfo("trace", pvm_getsbuf(), PvmMboxDefault);
    pvm_putinfo("", pvm_getsbuf(), PvmMboxDefault);
    pvm_recvinfo("trace", 0, PvmMboxDefault);
    pvm_recvinfo("none", 0, PvmMboxDefault);
    pvm_getmboxinfo("trace", &count, &boxes);
    pvm_delinfo("trace", 0, PvmMboxDefault);
    pvm_delinfo("trace", 0, PvmMboxDefault);
    pvm_insert("old", -1, 5);
    pvm_lookup("old", -1, &value);
    pvm_lookup("older", -1, &value);
    pvm_delete("old", 0);
    pvm_delete("old", 0);
}

static void spawns(void)
{
    char *arguments[] = {"a", "b", NULL};
    int tids[2];
    pvm_spawn("no.such.program", arguments, PvmTaskDefault, "", 2, tids);
    pvm_spawn("/bin/true", NULL, PvmTaskDefault, "", 0, tids);
}

int main(int argc, char **argv)
{
    static const struct {
        char *name;
        void (*calls)(void);
    } parts[] = {{"packing", packing}, {"longs", longs},       {"messages", messages}, {"machine", machine},
                 {"contexts", contexts}, {"mailboxes", mailboxes}, {"spawns", spawns}};
    unsigned part;
    case_begin();
    for (part = 0; part < sizeof parts / sizeof parts[0]; part++) {
        if (argc > 1 && strcmp(argv[1], parts[part].name) == 0) {
            trace_to(argv[2], PvmTraceFull, NULL);
            pvm_setopt(PvmAutoErr, 0);
            parts[part].calls();
            pvm_exit();
            pvm_parent(); /* enrolls again as a new task, which nobody traces */
            return 0;
        }
    }
    pvm_mytid();
    for (part = 0; part < sizeof parts / sizeof parts[0]; part++) {
        printf("---- %s\n", parts[part].name);
        trace_run(parts[part].name);
        trace_collect_tasks();
    }
    pvm_exit();
    return 0;
}
