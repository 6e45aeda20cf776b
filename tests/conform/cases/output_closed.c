/* The output of a task ends when the task closes it, even if the task goes on: pvm_exit of the collector does not wait. */
//@ unordered
#include "case.h"

int main(int argc, char **argv)
{
    char *arguments[] = {"child", NULL};
    time_t begin;
    int tid = 0;
    case_begin();
    (void)argv;
    if (argc > 1) {
        pvm_parent();
        printf("before\n");
        fflush(stdout);
        close(1);
        close(2);
        sleep(15);
        pvm_exit();
        return 0;
    }
    pvm_mytid();
    SHOW(pvm_catchout(stdout));
    SHOW(pvm_spawn(case_path(), arguments, 0, "", 1, &tid));
    begin = time(NULL);
    SHOW(pvm_exit());
    SHOW(time(NULL) - begin < 8);
    return 0;
}
