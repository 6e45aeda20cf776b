/* Enrolls and prints its tid. With an argument, waits until its standard input ends. */
#include <stdio.h>
#include <pvm3.h>

int main(int argc, char **argv)
{
    int tid = pvm_mytid();

    (void)argv;
    printf("%d\n", tid);
    fflush(stdout);
    if (argc > 1)
        while (getchar() != EOF)
            ;
    pvm_exit();
    return tid < 0;
}
