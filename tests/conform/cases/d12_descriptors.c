/* D12: a task with more than 1024 open descriptors. */
//@ ours-only D12: skip
#include "case.h"
#include <fcntl.h>
#include <sys/resource.h>

int main(int argc, char **argv)
{
    struct rlimit limit;
    int i, opened = 0, tid;
    case_begin();
    if (argc > 1) {
        case_signal(pvm_parent(), 1);
        pvm_exit();
        return 0;
    }
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max < 3000 ? limit.rlim_max : 3000;
    setrlimit(RLIMIT_NOFILE, &limit);
    for (i = 0; i < 1500; i++)
        opened += open("/dev/null", O_RDONLY) >= 0;
    SHOW(opened);
    SHOW(pvm_mytid() > 0);
    SHOW(case_spawn("child", 1, &tid));
    SHOW(case_receive(tid, 1, 5) > 0);
    SHOW(pvm_config(NULL, NULL, NULL));
    pvm_exit();
    return 0;
}
