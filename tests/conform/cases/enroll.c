/* Enrollment, exit, and a new tid after it. */
//@ fresh
#include "case.h"

int main(void)
{
    int first, again;
    case_begin();
    SHOW(pvm_errno);
    first = pvm_mytid();
    SHOW_HEX(first);
    SHOW(pvm_mytid() == first);
    SHOW(pvm_parent());
    SHOW_HEX(pvm_tidtohost(first));
    SHOW(pvm_exit());
    again = pvm_mytid();
    SHOW(again - first);
    SHOW(pvm_exit());
    SHOW(pvm_exit()); /* again */
    return 0;
}
