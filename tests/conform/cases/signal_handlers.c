/* A signal handler that interrupts the library in the middle of a call ends a child. */
#include "case.h"
#include <signal.h>
#include <sys/mman.h>

#define BYTES 100

static char *memory;
static int child, code = 1;

static void end_child(int number)
{
    code = pvm_kill(child);
    mprotect(memory, BYTES, PROT_READ | PROT_WRITE);
}

int main(int argc, char **argv)
{
    case_begin();
    pvm_mytid();
    if (argc > 1) {
        pvm_recv(-1, -1);
        return 0;
    }
    case_spawn("child", 1, &child);
    pvm_notify(PvmTaskExit, 1, 1, &child);
    memory = mmap(NULL, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    signal(SIGSEGV, end_child);
    pvm_initsend(PvmDataDefault);
    SHOW(pvm_pkbyte(memory, BYTES, 1));
    SHOW(code);
    SHOW(case_receive(-1, 1, 10) > 0);
    pvm_exit();
    return 0;
}
