/* The output of grandchildren arrives too. */
//@ unordered
#include "case.h"

static int child(const char *role)
{
    int tid;
    if (!strcmp(role, "grandchild")) {
        printf("from the grandchild\n");
        return 0;
    }
    printf("from the child\n");
    pvm_mytid();
    case_spawn("grandchild", 1, &tid);
    pvm_exit();
    return 0;
}

int main(int argc, char **argv)
{
    int tid;
    case_begin();
    if (argc > 1)
        return child(argv[1]);
    pvm_mytid();
    pvm_setopt(PvmShowTids, 0);
    SHOW(pvm_catchout(stdout));
    SHOW(case_spawn("child", 1, &tid));
    SHOW(pvm_exit());
    return 0;
}
