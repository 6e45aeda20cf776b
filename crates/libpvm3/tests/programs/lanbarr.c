/* Tests pvm_lanbarr inside a host: it meets pvm_barrier, and has the same errors. */
#include "check.h"

#define GROUP "lan"

/* As a program in Fortran calls it. */
void pvmflanbarr_(const char *group, const int *count, int *info, size_t length);

enum { ROUNDS = 1000 };

static void pass(int instance)
{
    int i;

    CHECK(pvm_joingroup(GROUP) == instance);
    CHECK(pvm_barrier(GROUP, 2) == 0);
    for (i = 0; i < ROUNDS; i++)
        CHECK(((i >> instance & 1) ? pvm_lanbarr : pvm_barrier)(GROUP, i % 3 ? 2 : -1) == 0);
}

int main(void)
{
    const int one = 1;
    int info = 1;
    pid_t child;

    pvm_mytid();
    CHECK(pvm_lanbarr(GROUP, 1) == PvmNoGroup);
    CHECK(pvm_lanbarr(NULL, 1) == PvmNullGroup);
    child = fork();
    if (child == 0) {
        /* The parent is the first member. */
        while (pvm_gsize(GROUP) != 1)
            usleep(1000);
        CHECK(pvm_lanbarr(GROUP, 2) == PvmNotInGroup);
        pass(1);
        CHECK(pvm_exit() == 0);
        exit(0);
    }
    pass(0);
    CHECK(pvm_lanbarr(GROUP, 0) == PvmBadParam && pvm_errno == PvmBadParam);
    CHECK(pvm_lanbarr(GROUP, -2) == PvmBadParam);
    CHECK(status_of(child) == 0);
    CHECK(pvm_lanbarr(GROUP, 1) == 0);
    pvmflanbarr_(GROUP, &one, &info, sizeof GROUP - 1);
    CHECK(info == 0);
    CHECK(pvm_exit() == 0);
    return 0;
}
