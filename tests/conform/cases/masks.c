/* pvm_settmask and pvm_gettmask; children inherit the masks. */
#include "case.h"

static void show(const char *what, int who)
{
    Pvmtmask mask;
    memset(mask, 'z', sizeof mask);
    mask[sizeof mask - 1] = 0;
    printf("%s: %d", what, pvm_gettmask(who, mask));
    printf(" %s\n", mask);
}

int main(int argc, char **argv)
{
    Pvmtmask mask;
    int child;
    char text[64];
    case_begin();
    if (argc > 1) {
        int parent = pvm_parent();
        pvm_gettmask(PvmTaskSelf, mask);
        pvm_initsend(PvmDataDefault);
        pvm_pkstr(mask);
        pvm_gettmask(PvmTaskChild, mask);
        pvm_pkstr(mask);
        pvm_pkstr(getenv("PVMTMASK") ? getenv("PVMTMASK") : "(unset)");
        pvm_send(parent, 1);
        pvm_exit();
        return 0;
    }
    pvm_mytid();
    show("self", PvmTaskSelf);
    show("child", PvmTaskChild);
    show("other", 2);
    TEV_MASK_INIT(mask);
    TEV_MASK_SET(mask, TEV_SEND);
    TEV_MASK_SET(mask, TEV_REDUCE);
    SHOW(pvm_settmask(PvmTaskSelf, mask));
    SHOW(pvm_settmask(PvmTaskChild, mask));
    SHOW(pvm_settmask(2, mask));
    SHOW(pvm_settmask(-1, mask));
    show("self", PvmTaskSelf);
    show("child", PvmTaskChild);
    SHOW(case_spawn("child", 1, &child));
    SHOW(case_receive(child, 1, 5) > 0);
    pvm_upkstr(text);
    SHOW_TEXT(text);
    pvm_upkstr(text);
    SHOW_TEXT(text);
    pvm_upkstr(text);
    SHOW_TEXT(text);
    strcpy(mask, "ABC"); /* the mask is returned unchanged, whatever it means */
    SHOW(pvm_settmask(PvmTaskSelf, mask));
    memset(mask, 'z', sizeof mask - 1);
    SHOW(pvm_settmask(PvmTaskChild, mask));
    show("self", PvmTaskSelf);
    show("child", PvmTaskChild);
    pvm_exit();
    return 0;
}
