/* Doubles a number. */
#include <pvm3.h>

int main(void)
{
    int number;
    pvm_recv(pvm_parent(), 1);
    pvm_upkint(&number, 1, 1);
    number *= 2;
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&number, 1, 1);
    pvm_send(pvm_parent(), 2);
    pvm_exit();
    return 0;
}
