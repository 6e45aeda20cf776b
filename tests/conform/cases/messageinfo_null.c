/* getminfo of a freed message. */
#include "case.h"

int main(void)
{
    struct pvmminfo info;
    int message;
    case_begin();
    pvm_mytid();
    message = pvm_mkbuf(PvmDataRaw);
    SHOW(pvm_getminfo(message, &info));
    SHOW(pvm_freebuf(message));
    SHOW(pvm_getminfo(message, &info));
    SHOW(pvm_errno);
    return 0;
}
