/* PVM_EXPORT with empty names, and with a name twice. */
#include "case.h"

static char *lists[] = {"", ":", "A::B", ":A", "A:", "A:A:B"};

static void pack_variable(char *name)
{
    char *value = getenv(name);
    pvm_pkstr(value ? value : "(unset)");
}

static void change(char *list, int (*call)(char *), char *what, char *name)
{
    setenv("PVM_EXPORT", list, 1);
    call(name);
    printf("'%s' %s '%s': '%s'\n", list, what, name, getenv("PVM_EXPORT"));
}

int main(int argc, char **argv)
{
    char text[100];
    int tid;
    unsigned i;
    case_begin();
    pvm_mytid();
    if (argc > 1) {
        pvm_initsend(PvmDataDefault);
        pack_variable("PVM_EXPORT");
        pack_variable("A");
        pack_variable("B");
        pvm_send(pvm_parent(), 1);
        pvm_exit();
        return 0;
    }
    setenv("A", "1", 1);
    setenv("B", "2", 1);
    for (i = 0; i < sizeof lists / sizeof *lists; i++) {
        change(lists[i], pvm_export, "and", "");
        change(lists[i], pvm_export, "and", "C");
        change(lists[i], pvm_unexport, "without", "");
        change(lists[i], pvm_unexport, "without", "A");
        change(lists[i], pvm_unexport, "without", "B");
        setenv("PVM_EXPORT", lists[i], 1);
        case_spawn("child", 1, &tid);
        case_receive(tid, 1, 5);
        pvm_upkstr(text);
        printf("the child has PVM_EXPORT '%s'", text);
        pvm_upkstr(text);
        printf(" A %s", text);
        pvm_upkstr(text);
        printf(" B %s\n", text);
    }
    pvm_exit();
    return 0;
}
