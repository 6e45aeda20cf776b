/* A task chooses another receiver of its own output: PvmSelfOutputTid. */
#include "case.h"

static void collect(int child, int tag)
{
    int turn, tid, length, parent, announced = 0, created = 0, ended = 0;
    char text[4096];
    for (turn = 0; turn < 20 && !(announced && ended); turn++) {
        if (case_receive(-1, tag, 3) <= 0) {
            printf("tag %d: no more\n", tag);
            break;
        }
        pvm_upkint(&tid, 1, 1);
        pvm_upkint(&length, 1, 1);
        if (tid != child)
            printf("of another\n");
        if (length > 0) {
            memset(text, 0, sizeof text);
            pvm_upkbyte(text, length, 1);
            printf("tag %d: %s", tag, text);
        } else if (length == 0) {
            ended = 1;
        } else {
            pvm_upkint(&parent, 1, 1);
            announced |= length == -1;
            created |= length == -2;
        }
    }
    printf("tag %d: announced %d created %d ended %d\n", tag, announced, created, ended);
}

int main(int argc, char **argv)
{
    int child, me;
    case_begin();
    if (argc > 1) {
        int parent = pvm_parent();
        printf("to the first\n");
        fflush(stdout);
        usleep(200000);
        pvm_setopt(PvmSelfOutputTid, parent);
        pvm_setopt(PvmSelfOutputCode, 52);
        usleep(100000);
        printf("to the second\n");
        fflush(stdout);
        usleep(200000);
        pvm_exit();
        return 0;
    }
    me = pvm_mytid();
    pvm_setopt(PvmOutputTid, me);
    pvm_setopt(PvmOutputCode, 51);
    SHOW(case_spawn("child", 1, &child));
    collect(child, 51);
    collect(child, 52);
    pvm_exit();
    return 0;
}
