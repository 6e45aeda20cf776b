/* Messages of all sizes come back unchanged. */
#include "case.h"

static int echo(void)
{
    int parent = pvm_parent();
    for (;;) {
        int tag, message = pvm_recv(parent, -1);
        pvm_bufinfo(message, NULL, &tag, NULL);
        if (tag == 99)
            break;
        pvm_setsbuf(message);
        pvm_send(parent, tag);
        pvm_freebuf(pvm_setsbuf(0));
    }
    pvm_exit();
    return 0;
}

int main(int argc, char **argv)
{
    static const int sizes[] = {0, 1, 3, 4, 7, 8, 31, 32, 33, 63, 64, 65, 100, 255, 256, 1000, 4047, 4048, 4080, 4081,
                                5000, 65535, 65536, 65537, 1000000, 3000001};
    int tid, encoding;
    unsigned i;
    char *out, *in;
    case_begin();
    if (argc > 1)
        return echo();
    pvm_mytid();
    SHOW(case_spawn("echo", 1, &tid));
    out = malloc(3000001);
    in = malloc(3000001);
    for (i = 0; i < 3000001; i++)
        out[i] = i * 2654435761u >> 24;
    for (encoding = 0; encoding < 3; encoding++)
        for (i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            int bytes = -1, result, message;
            memset(in, 0, sizes[i]);
            pvm_initsend(encoding);
            pvm_pkbyte(out, sizes[i], 1);
            pvm_send(tid, 1);
            message = case_receive(tid, 1, 10);
            pvm_bufinfo(message, &bytes, NULL, NULL);
            result = pvm_upkbyte(in, sizes[i], 1);
            printf("encoding %d size %d: %d bytes, unpack %d, equal %d\n", encoding, sizes[i], bytes, result,
                   !memcmp(in, out, sizes[i]));
        }
    case_signal(tid, 99);
    pvm_exit();
    return 0;
}
