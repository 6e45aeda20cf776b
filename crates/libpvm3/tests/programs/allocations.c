/* During a wait, a signal handler may call the library. So the library must not allocate or free memory there,
 * since the handler could interrupt the allocator. */
#include "check.h"
#include <errno.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static int watching, looking, calls, harmful;

/* Does what a signal handler does that runs now: calls the library, and counts the calls that were not refused. */
static void look(void)
{
    if (!watching || looking)
        return;
    looking = 1;
    calls++;
    if (pvm_mytid() >= 0)
        harmful++;
    looking = 0;
}

void *malloc(size_t bytes)
{
    look();
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    look();
    return __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
    look();
    return __libc_realloc(old, bytes);
}

int posix_memalign(void **place, size_t alignment, size_t bytes)
{
    look();
    *place = __libc_memalign(alignment, bytes);
    return *place ? 0 : ENOMEM;
}

void free(void *old)
{
    look();
    __libc_free(old);
}

int main(void)
{
    struct timeval limit = { 0, 50000 };
    int value = 1;

    CHECK(pvm_mytid() > 0);
    pvm_setopt(PvmAutoErr, 0);
    watching = 1;
    CHECK(pvm_trecv(-1, 1, &limit) == 0);
    CHECK(harmful == 0);
    /* A handler that interrupts an allocation is refused. */
    CHECK(pvm_initsend(PvmDataDefault) > 0 && pvm_pkint(&value, 1, 1) == 0);
    CHECK(calls > 0 && harmful == 0);
    watching = 0;
    CHECK(pvm_exit() == 0);
    return 0;
}
