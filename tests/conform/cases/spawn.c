/* pvm_spawn: arguments, environment, descriptors, results. */
#include "case.h"
#include <fcntl.h>

static int child(int argc, char **argv)
{
    char text[4096];
    int i, parent = pvm_parent();
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&argc, 1, 1);
    for (i = 0; i < argc; i++)
        pvm_pkstr(argv[i]);
    for (i = 0; i < 3; i++) {
        ssize_t length;
        char link[32];
        snprintf(link, sizeof link, "/proc/self/fd/%d", i);
        length = readlink(link, text, sizeof text - 1);
        text[length > 0 ? length : 0] = 0;
        if (strchr(text, '['))
            *strchr(text, '[') = 0;
        pvm_pkstr(text);
    }
    getcwd(text, sizeof text);
    pvm_pkstr(text);
    pvm_pkstr(getenv("PVM_ARCH") ? getenv("PVM_ARCH") : "(unset)");
    pvm_pkstr(getenv("PVMSPAWNWD") ? getenv("PVMSPAWNWD") : "(unset)");
    pvm_pkstr(getenv("ONLY_MINE") ? getenv("ONLY_MINE") : "(unset)");
    pvm_pkstr(getenv("EXPORTED") ? getenv("EXPORTED") : "(unset)");
    pvm_pkstr(getenv("PVM_EXPORT") ? getenv("PVM_EXPORT") : "(unset)");
    pvm_pkstr(getenv("PVMCTX") ? getenv("PVMCTX") : "(unset)");
    i = pvm_getcontext();
    pvm_pkint(&i, 1, 1);
    pvm_setcontext(0);
    pvm_send(parent, 1);
    pvm_exit();
    return 0;
}

static void report(int tid)
{
    static const char *labels[] = {"stdin", "stdout", "stderr", "directory", "PVM_ARCH", "PVMSPAWNWD",
                                   "ONLY_MINE", "EXPORTED", "PVM_EXPORT", "PVMCTX"};
    char text[4096];
    int count = 0, i;
    if (case_receive(tid, 1, 5) <= 0) {
        printf("no answer\n");
        return;
    }
    pvm_upkint(&count, 1, 1);
    printf("argc %d:", count);
    for (i = 0; i < count; i++) {
        pvm_upkstr(text);
        printf(" <%s>", text);
    }
    printf("\n");
    for (i = 0; i < 10; i++) {
        pvm_upkstr(text);
        printf("  %s: %s\n", labels[i], text);
    }
    pvm_upkint(&count, 1, 1);
    printf("  context: %d\n", count);
}

int main(int argc, char **argv)
{
    char *arguments[] = {"child", "two words", "", "-x", "quote\"d $HOME", NULL}, *child_only[] = {"child", NULL};
    char here[4200];
    int tids[4] = {-99, -99, -99, -99}, i;
    case_begin();
    if (argc > 1)
        return child(argc, argv);
    pvm_mytid();
    setenv("ONLY_MINE", "parent's", 1);
    setenv("EXPORTED", "a value", 1);
    SHOW(pvm_spawn(case_path(), arguments, PvmTaskDefault, NULL, 1, tids));
    report(tids[0]);
    SHOW(pvm_export("EXPORTED"));
    SHOW(pvm_export("UNSET_ONE"));
    SHOW(pvm_export("EXPORTED"));
    SHOW_TEXT(getenv("PVM_EXPORT"));
    pvm_setcontext(17);
    SHOW(pvm_spawn("spawn", child_only, PvmTaskDefault, "*", 1, tids)); /* found in the search path */
    pvm_setcontext(0);
    report(tids[0]);
    SHOW(pvm_unexport("EXPORTED"));
    SHOW_TEXT(getenv("PVM_EXPORT"));
    SHOW(pvm_unexport("EXPORTED"));
    SHOW(pvm_unexport("NEVER_THERE"));
    SHOW(pvm_unexport("UNSET_ONE"));
    SHOW_TEXT(getenv("PVM_EXPORT"));
    SHOW(pvm_spawn(case_path(), child_only, PvmTaskHost, ".:/", 1, tids));
    report(tids[0]);
    SHOW(pvm_spawn(case_path(), child_only, PvmTaskDefault, ":/usr", 1, tids));
    report(tids[0]);
    SHOW(pvm_spawn(case_path(), child_only, PvmTaskArch, "LINUX64:/tmp", 1, tids));
    report(tids[0]);
    gethostname(here, sizeof here);
    SHOW(pvm_spawn(case_path(), child_only, PvmTaskHost, here, 3, tids));
    for (i = 1; i < 3; i++)
        SHOW(tids[i] - tids[i - 1]);
    for (i = 0; i < 3; i++)
        SHOW(case_receive(tids[i], 1, 5) > 0);
    SHOW(pvm_spawn(case_path(), child_only, PvmTaskDefault, "", 2, NULL));
    SHOW(case_receive(-1, 1, 5) > 0);
    SHOW(case_receive(-1, 1, 5) > 0);
    pvm_exit();
    return 0;
}
