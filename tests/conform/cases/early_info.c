/* Information about a message before the process has enrolled. */
#include "case.h"

int main(void)
{
    struct pvmminfo info;
    int bytes = -1, tag = -1, tid = -1, buffer, value = 5;
    case_begin();
    buffer = pvm_mkbuf(PvmDataRaw);
    SHOW(pvm_setsbuf(buffer));
    SHOW(pvm_pkint(&value, 1, 1));
    SHOW(pvm_bufinfo(buffer, &bytes, &tag, &tid));
    printf("%d bytes, tag %d, of this task: %d\n", bytes, tag, tid == pvm_mytid());
    SHOW(pvm_exit());
    SHOW(pvm_getminfo(pvm_mkbuf(PvmDataDefault), &info));
    printf("of this task: %d, for nobody: %d\n", info.src == pvm_mytid(), info.dst == 0);
    SHOW(pvm_exit());
    return 0;
}
