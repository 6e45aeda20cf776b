/* Prints a line and a part of a line, and ends in a way that does not flush the C library's buffers. */
#include <pvm3.h>
#include <signal.h>
#include <stdio.h>

int main(void)
{
    if (pvm_version() == 0)
        return 1;
    printf("line\n");
    printf("part");
    raise(SIGKILL);
    return 0;
}
