/* A task closes all descriptors but 0, 1 and 2, as daemons do, and opens its own under the same numbers; or puts its own over
 * them; or a child of its fork does so and goes on. The first call after that sends, waits, asks for descriptors, or enrolls.
 * The library then uses no descriptor of the program, its calls fail with PvmSysErr, and pvm_mytid enrolls it again. */
//@ ours-only D61: skip
#include "case.h"
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* What the program opens, and how it takes the numbers. */
enum { FILES, PIPES, SOCKETS, DIRECTORIES, KINDS };
static const char *const kinds[KINDS] = {"files", "pipes", "sockets", "directories"};
enum { CLOSE, PUT_OVER, FORK, RECEIVE, GETFDS, MYTID, WAYS };
static const char *const ways[WAYS] = {"closed",         "put over",        "in a child",
                                       "then pvm_recv", "then pvm_getfds", "then pvm_mytid"};

#define FIRST 3
#define NUMBERS 60
#define LONG 300000
#define NO_CALL 1
enum { READY = 1, GO, LENGTH, TOLD };

static struct stat before[FIRST + NUMBERS];
static char body[LONG];

/* Opens descriptors of the program under all numbers from FIRST on. */
static void take_numbers(int kind, int over)
{
    int number, ends[2], other;
    for (number = FIRST; number < FIRST + NUMBERS; number++) {
        char name[] = "/tmp/closed-XXXXXX";
        int own = -1;
        if (!over)
            close(number);
        if (kind == FILES) {
            own = mkstemp(name);
            unlink(name);
            if (write(own, body, 5000) != 5000)
                own = -1;
        } else if (kind == DIRECTORIES) {
            own = open("/tmp", O_RDONLY | O_DIRECTORY);
        } else {
            if ((kind == PIPES ? pipe(ends) : socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) == 0) {
                /* The other end is somewhere else, so that what is written can be read. */
                other = fcntl(ends[1], F_DUPFD, FIRST + 2 * NUMBERS);
                close(ends[1]);
                own = ends[0];
                (void)other;
            }
        }
        if (own != number) {
            dup2(own, number);
            close(own);
        }
    }
    for (number = FIRST; number < FIRST + NUMBERS; number++)
        fstat(number, &before[number]);
}

/* Returns how many descriptors are not as they were. */
static int touched(int kind)
{
    int number, count = 0;
    for (number = FIRST; number < FIRST + NUMBERS; number++) {
        struct stat now;
        struct pollfd ready = {number, POLLIN, 0};
        int same = fstat(number, &now) == 0 && now.st_ino == before[number].st_ino && now.st_dev == before[number].st_dev;
        if (same && kind == FILES)
            same = now.st_size == 5000 && now.st_blocks == before[number].st_blocks
                && lseek(number, 0, SEEK_CUR) == 5000;
        if (same && (kind == PIPES || kind == SOCKETS))
            same = poll(&ready, 1, 0) == 0;
        count += !same;
    }
    /* Nothing may have come out at the other ends either. */
    for (number = FIRST + 2 * NUMBERS; number < FIRST + 4 * NUMBERS; number++) {
        struct pollfd ready = {number, POLLIN, 0};
        count += kind == SOCKETS && poll(&ready, 1, 0) > 0 && (ready.revents & POLLIN);
    }
    return count;
}

/* Calls the library until a call fails for lack of the connection. Returns the code. */
static int call_all(int tid)
{
    int turn, got;
    struct timeval pause = {0, 1000};
    for (turn = 0; turn < 3000; turn++) {
        pvm_initsend(PvmDataRaw);
        pvm_pkbyte(body, turn % 2 ? 8 : LONG, 1);
        if (pvm_send(tid, LENGTH) == PvmSysErr || pvm_psend(tid, LENGTH, body, LONG, PVM_BYTE) == PvmSysErr)
            return PvmSysErr;
        if (pvm_mcast(&tid, 1, LENGTH) == PvmSysErr || pvm_nrecv(-1, TOLD) == PvmSysErr)
            return PvmSysErr;
        if ((got = pvm_trecv(-1, TOLD, &pause)) < 0)
            return got;
    }
    return 0;
}

static void go_on(int kind, int way, int tid, int first)
{
    int told[6], *watched;
    pvm_setopt(PvmAutoErr, 0);
    if (way == GETFDS)
        pvm_getfds(&watched);
    take_numbers(kind, way == PUT_OVER);
    told[0] = kind;
    told[1] = way;
    told[2] = NO_CALL;
    /* A child of a fork is no task; each call that needs one enrolls it. */
    if (way == RECEIVE)
        told[2] = pvm_recv(-1, TOLD);
    else if (way == GETFDS)
        told[2] = pvm_getfds(&watched);
    else if (way == CLOSE || way == PUT_OVER)
        told[2] = call_all(tid);
    told[3] = touched(kind);
    told[4] = pvm_mytid() > 0 && pvm_mytid() != first;
    told[5] = touched(kind);
    pvm_psend(tid, TOLD, told, 6, PVM_INT);
    pvm_exit();
}

static void victim(int kind, int way)
{
    int tid = pvm_parent(), first = pvm_mytid(), turn;
    for (turn = 0; turn < 40; turn++) {
        pvm_psend(tid, READY, body, turn % 4 == 3 ? LONG : 8, PVM_BYTE);
        pvm_recv(tid, GO);
    }
    if (way == FORK) {
        if (fork() == 0) {
            go_on(kind, way, tid, first);
            _exit(0);
        }
        wait(NULL);
        case_signal(tid, READY);
        pvm_exit();
        return;
    }
    go_on(kind, way, tid, first);
}

int main(int argc, char **argv)
{
    int kind, way, tid, turn, told[6];
    char role[16];
    if (argc > 1) {
        victim(argv[1][0] - '0', argv[1][1] - '0');
        return 0;
    }
    case_begin();
    for (kind = 0; kind < KINDS; kind++) {
        for (way = 0; way < WAYS; way++) {
            snprintf(role, sizeof role, "%d%d", kind, way);
            if (case_spawn(role, 1, &tid) != 1)
                return 1;
            for (turn = 0; turn < 40; turn++) {
                pvm_recv(tid, READY);
                case_signal(tid, GO);
            }
            if (case_receive(-1, TOLD, 30.0) <= 0 || pvm_upkint(told, 6, 1) != 0) {
                printf("%s, %s: nothing came\n", kinds[kind], ways[way]);
                continue;
            }
            printf("%s, %s: code %d, touched %d, enrolled again %d, touched %d\n", kinds[told[0]], ways[told[1]], told[2],
                   told[3], told[4], told[5]);
            if (way == FORK)
                printf("the parent goes on: %d\n", case_receive(tid, READY, 30.0) > 0);
            case_gone(tid);
        }
    }
    pvm_exit();
    return 0;
}
