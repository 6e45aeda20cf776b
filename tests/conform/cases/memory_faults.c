/* The memory of the program faults while a call copies it, and the program's signal handler repairs the page, or leaves
 * the call by siglongjmp. After a jump the peer gets nothing of the message, or all of it, and later calls work. */
//@ ours-only D60: skip
#include "case.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

/* The ways of a call on memory that faults. */
enum { PSEND, RAW, DEFAULT, IN_PLACE, MULTICAST, WAYS };
static const char *const way_names[WAYS] = {"psend", "raw", "default", "in place", "multicast in place"};

static const size_t sizes[] = {8, 100, 5000, 70000, 1 << 20, 9 << 20};
#define SIZES (int)(sizeof sizes / sizeof *sizes)
#define PAGE 4096

/* Tags. */
enum { READY = 1, FAULTY, GOOD, TOLD, TURNS = 100 };

static char *memory, *bad_page;
static sigjmp_buf place;
static volatile sig_atomic_t jumps;

static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)context;
    if ((char *)info->si_addr < bad_page || (char *)info->si_addr >= bad_page + PAGE) {
        signal(number, SIG_DFL);
        return;
    }
    if (jumps)
        siglongjmp(place, 1);
    mprotect(bad_page, PAGE, PROT_READ | PROT_WRITE);
}

static void catch_faults(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
}

static char pattern(size_t index, int turn)
{
    return (char)(index * 7 + index / 251 + (size_t)turn);
}

/* Fills the memory, and makes its first or last page bad. */
static void prepare(size_t bytes, int turn, int last)
{
    size_t i;
    for (i = 0; i < bytes; i++)
        memory[i] = pattern(i, turn);
    bad_page = memory + (last ? (bytes - 1) / PAGE * PAGE : 0);
    mprotect(bad_page, PAGE, PROT_NONE);
}

static void repair(void)
{
    mprotect(bad_page, PAGE, PROT_READ | PROT_WRITE);
}

static int sends(int way, int tid, int tag, char *from, int bytes)
{
    static const int encodings[] = {0, PvmDataRaw, PvmDataDefault, PvmDataInPlace, PvmDataInPlace};
    int result;
    if (way == PSEND)
        return pvm_psend(tid, tag, from, bytes, PVM_BYTE);
    pvm_initsend(encodings[way]);
    if ((result = pvm_pkbyte(from, bytes, 1)) < 0)
        return result;
    return way == MULTICAST ? pvm_mcast(&tid, 1, tag) : pvm_send(tid, tag);
}

/* Returns how many bytes of what was received are not those that were sent. */
static size_t wrong(size_t bytes, int turn)
{
    size_t i, count = 0;
    for (i = 0; i < bytes; i++)
        count += memory[i] != pattern(i, turn);
    return count;
}

/* Sends from memory that faults, then a good message, which holds the number of the turn and what the call has given. */
static void send_turn(int way, int tid, int turn, size_t bytes, int last)
{
    volatile int result = 1;
    int told[2];
    prepare(bytes, turn, last);
    if (sigsetjmp(place, 1) == 0)
        result = sends(way, tid, FAULTY, memory, (int)bytes);
    repair();
    told[0] = turn;
    told[1] = result;
    sends(way, tid, GOOD, (char *)told, (int)sizeof told);
}

static void child(void)
{
    int way, size, last, turn = 0, tid = pvm_parent(), ready;
    pvm_precv(tid, READY, &ready, 1, PVM_INT, NULL, NULL, NULL);
    for (jumps = 0; jumps < 2; jumps++)
        for (way = 0; way < WAYS; way++)
            for (size = 0; size < SIZES; size++)
                for (last = 0; last < 2; last++)
                    send_turn(way, tid, turn++, sizes[size], last);
    for (turn = 0; turn < 2 * SIZES * 2 * 2; turn++) {
        prepare(sizes[turn / 2 % SIZES], turn, 0);
        repair();
        pvm_psend(tid, TURNS + turn, memory, (int)sizes[turn / 2 % SIZES], PVM_BYTE);
        pvm_psend(tid, GOOD, &turn, 1, PVM_INT);
    }
    pvm_recv(tid, TOLD);
}

/* Receives what one turn of the child sends. */
static const char *hear_turn(int tid, int turn, size_t bytes)
{
    int got = 0, tag = 0, told[2] = {0, 0}, jumped;
    if (case_receive(tid, -1, 30.0) <= 0)
        return "nothing came";
    pvm_bufinfo(pvm_getrbuf(), &got, &tag, NULL);
    if (tag == FAULTY) {
        if (got != (int)bytes)
            return "a part of a message came";
        pvm_upkbyte(memory, got, 1);
        if (wrong(bytes, turn))
            return "a wrong message came";
        if (case_receive(tid, GOOD, 30.0) <= 0)
            return "no good message came";
    }
    pvm_upkbyte((char *)told, (int)sizeof told, 1);
    jumped = told[1] == 1;
    if (told[0] != turn)
        return "the good message of another turn came";
    if (!jumped && (tag != FAULTY || told[1] != 0))
        return "a message was lost";
    return "ok";
}

/* Receives into memory that faults, then a good message. */
static const char *receive_turn(int tid, int turn, size_t bytes, int last, int unpacked)
{
    volatile int result = 1;
    int told = -1, got = 0;
    const char *verdict = "ok";
    prepare(bytes, turn + 1, last);
    if (sigsetjmp(place, 1) == 0) {
        if (!unpacked) {
            result = pvm_precv(tid, TURNS + turn, memory, (int)bytes, PVM_BYTE, NULL, NULL, &got);
        } else {
            pvm_recv(tid, TURNS + turn);
            result = pvm_upkbyte(memory, (int)bytes, 1);
        }
    }
    repair();
    if (result == 1 ? !jumps : result != 0 || wrong(bytes, turn))
        verdict = "not received";
    if (unpacked && result == 1 && (pvm_bufinfo(pvm_getrbuf(), &got, NULL, NULL) != 0 || got != (int)bytes))
        verdict = "the message is no longer the receive buffer";
    if (case_receive(tid, GOOD, 30.0) <= 0 || pvm_upkint(&told, 1, 1) != 0 || told != turn)
        verdict = "no good message came";
    /* A message that precv has not received is still there, as a whole. */
    if (result == 1 && !unpacked && pvm_nrecv(tid, TURNS + turn) > 0)
        if (pvm_upkbyte(memory, (int)bytes, 1) != 0 || wrong(bytes, turn))
            verdict = "a part of the message is lost";
    return verdict;
}

static void show(const char *verdict, const char *what, size_t bytes, int last)
{
    if (strcmp(verdict, "ok") != 0)
        printf("%s of %ld bytes, %s page, %s: %s\n", what, (long)bytes, last ? "last" : "first",
               jumps ? "jump" : "repair", verdict);
}

int main(int argc, char **argv)
{
    int tid, way, size, last, unpacked, turn = 0;
    memory = mmap(NULL, sizes[SIZES - 1] + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    catch_faults();
    if (argc > 1) {
        pvm_setopt(PvmAutoErr, 0);
        child();
        pvm_exit();
        return 0;
    }
    case_begin();
    SHOW(case_spawn("child", 1, &tid));
    pvm_psend(tid, READY, &turn, 1, PVM_INT);
    for (jumps = 0; jumps < 2; jumps++)
        for (way = 0; way < WAYS; way++)
            for (size = 0; size < SIZES; size++)
                for (last = 0; last < 2; last++)
                    show(hear_turn(tid, turn++, sizes[size]), way_names[way], sizes[size], last);
    turn = 0;
    for (jumps = 0; jumps < 2; jumps++)
        for (unpacked = 0; unpacked < 2; unpacked++)
            for (size = 0; size < SIZES; size++)
                for (last = 0; last < 2; last++)
                    show(receive_turn(tid, turn++, sizes[size], last, unpacked), unpacked ? "unpack" : "precv",
                         sizes[size], last);
    case_signal(tid, TOLD);
    case_gone(tid);
    printf("done\n");
    pvm_exit();
    return 0;
}
