/* Prints a line and a part of one, and ends so that the C library writes nothing any more. */
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
