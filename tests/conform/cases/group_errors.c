/* Every code that a group call can return, and which of them are printed. */
//@ differs D6: pvm_barrier("own", -2): -3 => pvm_barrier("own", -2): -2
//@ differs D6: pvm_barrier("own", -100): -3 => pvm_barrier("own", -100): -2
#include "group.h"

static int value[4], more[4];

static void no_group(char *name)
{
    SHOW(pvm_joingroup(name));
    SHOW(pvm_lvgroup(name));
    SHOW(pvm_gsize(name));
    SHOW(pvm_gettid(name, 0));
    SHOW(pvm_getinst(name, pvm_mytid()));
    SHOW(pvm_barrier(name, 1));
    SHOW(pvm_bcast(name, 1));
    SHOW(pvm_freezegroup(name, 1));
    SHOW(pvm_reduce(PvmSum, value, 1, PVM_INT, 1, name, 0));
    SHOW(pvm_gather(more, value, 1, PVM_INT, 1, name, 0));
    SHOW(pvm_scatter(more, value, 1, PVM_INT, 1, name, 0));
}

static void unknown_group(void)
{
    SHOW(pvm_lvgroup("nobody"));
    SHOW(pvm_gsize("nobody"));
    SHOW(pvm_gettid("nobody", 0));
    SHOW(pvm_getinst("nobody", pvm_mytid()));
    SHOW(pvm_barrier("nobody", 1));
    SHOW(pvm_barrier("nobody", -1));
    SHOW(pvm_bcast("nobody", 1));
    SHOW(pvm_freezegroup("nobody", 1));
    SHOW(pvm_reduce(PvmSum, value, 1, PVM_INT, 1, "nobody", 0));
    SHOW(pvm_gather(more, value, 1, PVM_INT, 1, "nobody", 0));
    SHOW(pvm_scatter(more, value, 1, PVM_INT, 1, "nobody", 0));
}

static void not_a_member(void)
{
    SHOW(pvm_lvgroup("other"));
    SHOW(pvm_getinst("other", pvm_mytid()));
    SHOW(pvm_getinst("other", 77));
    SHOW(pvm_gettid("other", 1));
    SHOW(pvm_gettid("other", -1));
    SHOW(pvm_gettid("other", 100000));
    SHOW(pvm_barrier("other", 1));
    SHOW(pvm_barrier("other", -1));
    SHOW(pvm_freezegroup("other", 1));
    SHOW(pvm_reduce(PvmSum, value, 1, PVM_INT, 1, "other", 0));
    SHOW(pvm_gather(more, value, 1, PVM_INT, 1, "other", 0));
    SHOW(pvm_scatter(more, value, 1, PVM_INT, 1, "other", 0));
}

static void wrong_arguments(void)
{
    SHOW(pvm_joingroup("own"));
    SHOW(pvm_barrier("own", -2));
    SHOW(pvm_barrier("own", -100));
    SHOW(pvm_reduce(PvmSum, NULL, 1, PVM_INT, 1, "own", 0));
    SHOW(pvm_reduce(PvmSum, value, 0, PVM_INT, 1, "own", 0));
    SHOW(pvm_reduce(PvmSum, value, -1, PVM_INT, 1, "own", 0));
    SHOW(pvm_reduce(PvmSum, value, 1, PVM_STR, 1, "own", 0));
    SHOW(pvm_reduce(PvmSum, value, 1, 99, 1, "own", 0));
    SHOW(pvm_reduce(PvmSum, value, 1, -1, 1, "own", 0));
    SHOW(pvm_reduce(PvmSum, value, 1, PVM_INT, 1, "own", 1));
    SHOW(pvm_reduce(PvmSum, value, 1, PVM_INT, 1, "own", -1));
    SHOW(pvm_gather(NULL, value, 1, PVM_INT, 1, "own", 0));
    SHOW(pvm_gather(more, NULL, 1, PVM_INT, 1, "own", 0));
    SHOW(pvm_gather(more, value, 0, PVM_INT, 1, "own", 0));
    SHOW(pvm_gather(more, value, -1, PVM_INT, 1, "own", 0));
    SHOW(pvm_gather(more, value, 1, PVM_STR, 1, "own", 0));
    SHOW(pvm_gather(more, value, 1, 99, 1, "own", 0));
    SHOW(pvm_gather(more, value, 1, PVM_INT, 1, "own", 1));
    SHOW(pvm_gather(more, value, 1, PVM_INT, 1, "own", -1));
    SHOW(pvm_scatter(NULL, value, 1, PVM_INT, 1, "own", 0));
    SHOW(pvm_scatter(more, NULL, 1, PVM_INT, 1, "own", 0));
    SHOW(pvm_scatter(more, value, 0, PVM_INT, 1, "own", 0));
    SHOW(pvm_scatter(more, value, -1, PVM_INT, 1, "own", 0));
    SHOW(pvm_scatter(more, value, 1, PVM_STR, 1, "own", 0));
    SHOW(pvm_scatter(more, value, 1, 99, 1, "own", 0));
    SHOW(pvm_scatter(more, value, 1, PVM_INT, 1, "own", 1));
    SHOW(pvm_scatter(more, value, 1, PVM_INT, 1, "own", -1));
}

/* Prints pvm_errno, and lets pvm_perror print its text. */
static void last_failure(void)
{
    pvm_errno = 0;
    pvm_joingroup("own");
    SHOW(pvm_errno);
    pvm_errno = 0;
    pvm_lvgroup("nobody");
    SHOW(pvm_errno);
    pvm_errno = 0;
    pvm_gsize("nobody");
    SHOW(pvm_errno);
    pvm_errno = 0;
    pvm_gettid("own", 5);
    SHOW(pvm_errno);
    pvm_errno = 0;
    pvm_getinst("own", 5);
    SHOW(pvm_errno);
    pvm_errno = 0;
    pvm_barrier("other", 2);
    SHOW(pvm_errno);
    pvm_errno = 0;
    pvm_bcast("nobody", 2);
    SHOW(pvm_errno);
    pvm_errno = 0;
    pvm_freezegroup("nobody", 1);
    SHOW(pvm_errno);
    pvm_errno = 0;
    pvm_reduce(PvmSum, value, 1, PVM_INT, 1, "nobody", 0);
    SHOW(pvm_errno);
    pvm_errno = 0;
    pvm_gather(more, value, 1, PVM_INT, 1, "own", 3);
    SHOW(pvm_errno);
    pvm_errno = 0;
    pvm_scatter(more, value, 1, PVM_INT, 1, "own", 3);
    SHOW(pvm_errno);
    pvm_perror("last");
}

int main(int argc, char **argv)
{
    int tid;
    case_begin();
    if (argc > 1)
        return group_child();
    pvm_mytid();
    group_spawn(1, &tid);
    SHOW(group_do(tid, JOIN, "other", 0, 0));
    no_group(NULL);
    no_group("");
    unknown_group();
    not_a_member();
    wrong_arguments();
    last_failure();
    group_end(1, &tid);
    pvm_exit();
    return 0;
}
