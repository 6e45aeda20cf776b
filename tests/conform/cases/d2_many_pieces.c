/* D2: an in-place message may have any number of pieces. */
//@ ours-only D2: crashes
#include "case.h"

int main(void)
{
    static int values[1000], in[1000];
    int i, bytes = -1;
    case_begin();
    pvm_mytid();
    pvm_initsend(PvmDataInPlace);
    for (i = 0; i < 1000; i++) {
        values[i] = i * 3;
        if (pvm_pkint(values + i, 1, 1) < 0)
            printf("piece %d is refused\n", i);
    }
    SHOW(pvm_send(pvm_mytid(), 1));
    SHOW(case_own(1) > 0);
    pvm_bufinfo(pvm_getrbuf(), &bytes, NULL, NULL);
    SHOW(bytes);
    SHOW(pvm_upkint(in, 1000, 1));
    SHOW(memcmp(in, values, sizeof in));
    pvm_exit();
    return 0;
}
