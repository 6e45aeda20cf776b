/* D30: pvm_spawn returns an error for a directory that does not exist, and for a file that cannot be executed. */
//@ fresh
//@ differs D30: pvm_spawn("/bin/true", NULL, PvmTaskHost, ".:/no/such/directory", 1, &tid): 1 => pvm_spawn("/bin/true", NULL, PvmTaskHost, ".:/no/such/directory", 1, &tid): 0
//@ differs D30: tid > 0 ? 1 : tid: 1 => tid > 0 ? 1 : tid: -7
//@ differs D30: pvm_spawn(path, NULL, PvmTaskDefault, "", 1, &tid): 1 => pvm_spawn(path, NULL, PvmTaskDefault, "", 1, &tid): 0
//@ differs D30: tid > 0 ? 1 : tid: 1 => tid > 0 ? 1 : tid: -7
#include "case.h"
#include <sys/stat.h>

int main(void)
{
    int tid = 0;
    char path[4096];
    FILE *file;
    case_begin();
    pvm_mytid();
    SHOW(pvm_spawn("/bin/true", NULL, PvmTaskHost, ".:/no/such/directory", 1, &tid));
    SHOW(tid > 0 ? 1 : tid);
    snprintf(path, sizeof path, "%s/garbage", getenv("HOME"));
    file = fopen(path, "w");
    fputs("\177garbage", file);
    fclose(file);
    chmod(path, 0755);
    SHOW(pvm_spawn(path, NULL, PvmTaskDefault, "", 1, &tid));
    SHOW(tid > 0 ? 1 : tid);
    pvm_exit();
    return 0;
}
