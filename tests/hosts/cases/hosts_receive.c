/* Receiving messages from other hosts: probe, nrecv, trecv, wildcards, contexts. */
#include "hosts.h"

int main(int argc, char **argv)
{
    int tids[4], i, bytes, tag, source, context, sum = 0, value;
    struct pvmminfo info;
    struct timeval limit = {0, 200000};
    case_begin();
    if (argc > 1) {
        int parent = pvm_parent();
        while (pvm_recv(parent, -1) > 0) {
            pvm_upkint(&tag, 1, 1);
            if (tag < 0)
                break;
            pvm_upkint(&context, 1, 1);
            pvm_upkint(&value, 1, 1);
            pvm_setcontext(context);
            pvm_initsend(tag % 2 ? PvmDataDefault : PvmDataRaw);
            pvm_pkint(&value, 1, 1);
            pvm_pkstr("some text");
            pvm_send(parent, tag);
            pvm_setcontext(0);
        }
        pvm_exit();
        return 0;
    }
    pvm_mytid();
    SHOW(spawn_on_all("child", tids));
#define ASK(child, tag_, context_, value_)                                                         \
    do {                                                                                           \
        int ask_[3] = {tag_, context_, value_};                                                    \
        pvm_initsend(PvmDataDefault);                                                              \
        pvm_pkint(ask_, 3, 1);                                                                     \
        pvm_send(tids[child], 1);                                                                  \
    } while (0)
    SHOW(pvm_nrecv(-1, -1));
    SHOW(pvm_probe(-1, -1));
    SHOW(pvm_trecv(tids[1], 5, &limit));
    ASK(1, 5, 0, 41);
    while (!pvm_probe(tids[1], 5))
        usleep(1000);
    SHOW(pvm_nrecv(tids[2], 5));
    SHOW(pvm_nrecv(tids[1], 6));
    SHOW(pvm_nrecv(tids[1], 5) > 0);
    SHOW(pvm_bufinfo(pvm_getrbuf(), &bytes, &tag, &source));
    printf("%d bytes, tag %d, from its sender %d\n", bytes, tag, source == tids[1]);
    pvm_getminfo(pvm_getrbuf(), &info);
    printf("length %d context %d tag %d wait %d encoding %x source %d destination %d\n", info.len, info.ctx, info.tag,
           info.wid, info.enc, info.src == tids[1], info.dst == pvm_mytid());
    /* Messages of another context do not match. */
    ASK(2, 7, 9, 42);
    ASK(2, 8, 0, 43);
    SHOW(case_receive(tids[2], 8, PATIENCE) > 0);
    SHOW(pvm_nrecv(tids[2], 7));
    pvm_setcontext(9);
    SHOW(pvm_nrecv(-1, -1) > 0);
    pvm_upkint(&value, 1, 1);
    SHOW(value);
    pvm_setcontext(0);
    for (i = 0; i < 100; i++)
        ASK(i % 4, 10 + i % 3, 0, i);
    for (i = 0; i < 100; i++) {
        if (case_receive(-1, i < 34 ? 10 : i < 67 ? 11 : 12, PATIENCE) <= 0) {
            printf("message %d is missing\n", i);
            break;
        }
        pvm_upkint(&value, 1, 1);
        sum += value;
    }
    SHOW(sum);
    SHOW(pvm_nrecv(-1, -1));
    for (i = 0; i < 4; i++)
        ASK(i, -1, 0, 0);
    for (i = 0; i < 4; i++)
        case_gone(tids[i]);
    SHOW(case_signal(tids[1], 1));
    pvm_exit();
    return 0;
}
