/* A task in C: gets an int, a text, and doubles; sends the doubles' squares and the text back. */
#include <pvm3.h>

int main(void)
{
    double values[64];
    char text[64];
    int count, i, parent = pvm_parent();

    pvm_recv(parent, 3);
    pvm_upkint(&count, 1, 1);
    pvm_upkstr(text);
    pvm_upkdouble(values, count, 1);
    for (i = 0; i < count; i++)
        values[i] *= values[i];
    pvm_initsend(PvmDataDefault);
    pvm_pkdouble(values, count, 1);
    pvm_pkstr(text);
    pvm_send(parent, 4);
    pvm_exit();
    return 0;
}
