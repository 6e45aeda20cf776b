/* The tables of the names of events and of their data, for programs that read traces, such as XPVM. */
#include "case.h"

extern struct Pvmtevinfo pvmtevinfo[];
extern struct Pvmtevdid pvmtevdidlist[];

int main(void)
{
    int index;
    case_begin();
    for (index = 0; index <= TEV_MAX; index++)
        printf("event %d: %s\n", index, pvmtevinfo[index].name);
    for (index = 0; index <= TEV_DID_MAX; index++)
        printf("datum %d: %s, %s\n", index, pvmtevdidlist[index].did, pvmtevdidlist[index].desc);
    return 0;
}
