/*
 * The byte of the C library that is set while the process has only one thread. The symbol is weak, since some C
 * libraries do not define it; then the process counts as one with several threads.
 */
extern char __libc_single_threaded __attribute__((weak));

static char unknown = 0;

volatile char *hpvm_single_threaded_byte(void);

volatile char *hpvm_single_threaded_byte(void)
{
    return &__libc_single_threaded ? &__libc_single_threaded : &unknown;
}
