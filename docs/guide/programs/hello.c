/* hello: each task says which of its siblings it is */
#include <pvm3.h>
#include <stdio.h>

int main(void)
{
    int *tids, place = 0;
    int me = pvm_mytid();                           /* the first call makes this process a task */
    int count = pvm_siblings(&tids);                /* the tasks that were started together with this one */

    while (place < count - 1 && tids[place] != me)
        place++;
    printf("hello from task %d of %d\n", place, count);
    pvm_exit();
    return 0;
}
