/* A send buffer stays after the send: it is sent again, appended to, and forwarded. */
//@ differs D16: after packing into a received message: 4 bytes => after packing into a received message: 12 bytes
#include "case.h"

static int size(int message)
{
    int bytes = -1;
    pvm_bufinfo(message, &bytes, NULL, NULL);
    return bytes;
}

int main(void)
{
    int values[2] = {1, 2}, more = 3, in[4] = {0}, encoding, message;
    case_begin();
    pvm_mytid();
    for (encoding = 0; encoding < 2; encoding++) {
        pvm_initsend(encoding);
        pvm_pkint(values, 2, 1);
        pvm_send(pvm_mytid(), 1);
        SHOW(pvm_send(pvm_mytid(), 2));
        SHOW(pvm_pkint(&more, 1, 1));
        SHOW(pvm_send(pvm_mytid(), 3));
        SHOW(size(case_own(1)));
        SHOW(size(case_own(2)));
        SHOW(size(case_own(3)));
        SHOW(pvm_upkint(in, 3, 1));
        printf("%d %d %d\n", in[0], in[1], in[2]);
        /* Forwards the received message, before and after reading it. */
        message = pvm_getrbuf();
        SHOW(pvm_setsbuf(message) > 0);
        SHOW(pvm_getrbuf());
        SHOW(pvm_send(pvm_mytid(), 4));
        SHOW(size(case_own(4)));
        SHOW(pvm_upkint(in, 3, 1));
        printf("forwarded: %d %d %d\n", in[0], in[1], in[2]);
    }
    for (encoding = 0; encoding < 2; encoding++) {
        pvm_initsend(encoding);
        pvm_pkint(values, 2, 1);
        pvm_send(pvm_mytid(), 1);
        message = case_own(1);
        pvm_setsbuf(message);
        pvm_pkint(&more, 1, 1);
        if (encoding == PvmDataDefault)
            printf("after packing into a received message: %d bytes\n", size(message));
        else
            printf("after packing into a raw received message: %d bytes\n", size(message));
    }
    pvm_exit();
    return 0;
}
