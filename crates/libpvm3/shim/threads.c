/*
 * The byte of the C library that tells whether the process has one thread. The symbol is weak, so that the library
 * also works where it is missing; then the answer is always "no".
 */
extern char __libc_single_threaded __attribute__((weak));

static char unknown = 0;

volatile char *hpvm_single_threaded_byte(void);

volatile char *hpvm_single_threaded_byte(void)
{
    return &__libc_single_threaded ? &__libc_single_threaded : &unknown;
}
