/* The format of the library's own log lines. */
#include "case.h"

extern int pvmlogerror(const char *text);

int main(void)
{
    case_begin();
    pvm_mytid();
    pvmlogerror("in words\n");
    pvmlogerror("without an end");
    pvmlogerror("\n");
    pvm_exit();
    return 0;
}
