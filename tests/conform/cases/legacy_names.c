/* pvm_insert, pvm_lookup, pvm_delete. */
//@ fresh
#include "case.h"

int main(void)
{
    int data = -1;
    case_begin();
    pvm_mytid();
    SHOW(pvm_lookup("name", -1, &data));
    SHOW(pvm_delete("name", 0));
    SHOW(pvm_insert("name", -1, 100));
    SHOW(pvm_insert("name", -1, 101));
    SHOW(pvm_insert("name", 5, 105));
    SHOW(pvm_insert("name", 5, 106));
    SHOW(pvm_insert("name", -1, 102));
    SHOW(pvm_lookup("name", -1, &data));
    SHOW(data);
    SHOW(pvm_lookup("name", 5, &data));
    SHOW(data);
    SHOW(pvm_lookup("name", 4, &data));
    SHOW(pvm_lookup("name", 1, NULL));
    SHOW(pvm_delete("name", 0));
    SHOW(pvm_delete("name", 0));
    SHOW(pvm_delete("name", -1));
    SHOW(pvm_lookup("name", -1, &data));
    SHOW(data);
    SHOW(pvm_insert("name", -2, 1));
    SHOW(pvm_insert("", -1, 1));
    SHOW(pvm_insert(NULL, -1, 1));
    SHOW(pvm_lookup("", -1, &data));
    SHOW(pvm_lookup(NULL, -1, &data));
    SHOW(pvm_delete("", 0));
    SHOW(pvm_delete(NULL, 0));
    pvm_exit();
    return 0;
}
