/* A signal handler that has interrupted a call of the library ends a task, and notes more signals than there is room
 * for. The library reads memory that may not be read, so the handler certainly interrupts it. */
#include "check.h"
#include <signal.h>
#include <sys/mman.h>

#define BYTES 100
#define SIGNALS_MAX 256

static char *memory;
static int task, ended, wrong, noted, refused, other;

static void end_task(int number)
{
    (void)number;
    ended = pvm_kill(task);
    wrong = pvm_kill(0);
    while ((refused = pvm_sendsig(task, 0)) == 0)
        noted++;
    other = pvm_pstat(task);
    mprotect(memory, BYTES, PROT_READ | PROT_WRITE);
}

int main(void)
{
    int ends[2];
    pid_t child;

    CHECK(pipe(ends) == 0);
    child = fork();
    if (child == 0) {
        task = pvm_mytid();
        CHECK(write(ends[1], &task, sizeof task) == sizeof task);
        pvm_recv(-1, -1);
        return 1;
    }
    CHECK(read(ends[0], &task, sizeof task) == sizeof task);
    CHECK(pvm_mytid() > 0);
    pvm_setopt(PvmAutoErr, 0);
    memory = mmap(NULL, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    signal(SIGSEGV, end_task);
    CHECK(pvm_initsend(PvmDataDefault) > 0);
    CHECK(pvm_pkbyte(memory, BYTES, 1) == 0);
    CHECK(ended == 0 && wrong == PvmBadParam);
    CHECK(noted == SIGNALS_MAX - 1 && refused == PvmSysErr && other == PvmSysErr);
    CHECK(status_of(child) == 128 + SIGTERM);
    CHECK(pvm_sendsig(pvm_mytid(), 0) == 0);
    CHECK(pvm_exit() == 0);
    return 0;
}
