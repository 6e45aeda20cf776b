/* PvmOutputTid: the contents of the messages that carry output. */
#include "case.h"

int main(int argc, char **argv)
{
    char text[4096];
    int me, child, tid, length, turn, from = 0, announced = 0, created = 0, ended = 0, lines = 0;
    case_begin();
    if (argc > 1) {
        printf("hello\nworld\n");
        return 0;
    }
    me = pvm_mytid();
    pvm_setopt(PvmOutputTid, me);
    pvm_setopt(PvmOutputCode, 44);
    pvm_setopt(PvmOutputContext, 3);
    SHOW(case_spawn("child", 1, &child));
    pvm_setcontext(3);
    for (turn = 0; turn < 50 && !(announced && ended); turn++) {
        struct pvmminfo info;
        int message = case_receive(-1, 44, 5), parent;
        if (message <= 0)
            break;
        pvm_getminfo(message, &info);
        from |= info.src != child && info.src != (int)0x80000000;
        pvm_upkint(&tid, 1, 1);
        pvm_upkint(&length, 1, 1);
        if (tid != child)
            printf("of another task\n");
        if (length > 0) {
            memset(text, 0, sizeof text);
            pvm_upkbyte(text, length, 1);
            lines += strcmp(text, "hello\nworld\n") == 0 ? 2 : 1;
        } else if (length == 0) {
            ended = 1;
        } else {
            pvm_upkint(&parent, 1, 1);
            if (parent != me)
                printf("parent is another\n");
            if (length == -1)
                announced = 1;
            else if (length == -2)
                created = 1;
            else
                printf("length %d\n", length);
        }
    }
    SHOW(lines);
    SHOW(announced);
    SHOW(created);
    SHOW(ended);
    SHOW(from);
    pvm_exit();
    return 0;
}
