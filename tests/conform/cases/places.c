/* The directory of temporary files, and the program that starts commands on other hosts. */
//@ env PVM_RSH=/no/such/shell
#include "case.h"

extern char *pvmgetrsh(void);
extern char *pvmtmpnam(char *name);

int main(void)
{
    char first[128] = "", second[128] = "", *result;
    size_t length = strlen(getenv("PVM_TMP"));
    case_begin();
    SHOW_TEXT(pvmgetrsh());
    SHOW(strcmp(pvmgettmp(), getenv("PVM_TMP")));
    result = pvmtmpnam(first);
    SHOW(result == first);
    SHOW(strncmp(first, getenv("PVM_TMP"), length) == 0 && first[length] == '/');
    SHOW(access(first, F_OK));
    fclose(fopen(first, "w"));
    pvmtmpnam(second);
    SHOW(strcmp(first, second) != 0);
    SHOW(access(second, F_OK));
    remove(first);
    return 0;
}
