/* pvm_catchout: output of children arrives with tags, line by line. */
#include "case.h"

static int child(const char *role)
{
    if (!strcmp(role, "plain")) {
        printf("one line\nand another\nwithout its end");
        return 3;
    }
    if (!strcmp(role, "error")) {
        fprintf(stderr, "to stderr\n");
        printf("to stdout\n");
        pvm_exit();
        return 0;
    }
    if (!strcmp(role, "silent"))
        return 0;
    if (!strcmp(role, "parent")) {
        int tid;
        pvm_mytid();
        case_spawn("plain", 1, &tid);
        pvm_exit();
        return 0;
    }
    if (!strcmp(role, "long")) {
        char line[6001];
        memset(line, 'x', 6000);
        line[6000] = 0;
        printf("%s\nshort\n", line);
    }
    return 0;
}

static void collect(char *role)
{
    int tid;
    printf("---- %s\n", role);
    pvm_mytid();
    SHOW(pvm_catchout(stdout));
    SHOW(case_spawn(role, 1, &tid));
    SHOW(pvm_exit());
}

int main(int argc, char **argv)
{
    int tid;
    case_begin();
    if (argc > 1) {
        setvbuf(stdout, NULL, _IOFBF, 65536);
        usleep(150000); /* the parent waits by then */
        return child(argv[1]);
    }
    collect("plain");
    collect("error");
    collect("silent");
    collect("long");
    pvm_mytid();
    pvm_setopt(PvmShowTids, 0);
    collect("plain");
    pvm_mytid();
    pvm_setopt(PvmShowTids, 1);
    SHOW(pvm_catchout(NULL));
    SHOW(case_spawn("plain", 1, &tid));
    case_gone(tid);
    /* PVM prints errors of its own in pvm_exit after a catchout is switched off. */
    pvm_setopt(PvmAutoErr, 0);
    SHOW(pvm_exit());
    return 0;
}
