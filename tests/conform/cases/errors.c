/* pvm_perror, pvm_strerror, lpvmerr, pvm_errlist. */
#include "case.h"
#include <signal.h>
#include <sys/wait.h>

extern char *pvm_strerror(void);
extern char *pvm_errlist[];
extern int pvm_nerr;

int main(void)
{
    int code;
    case_begin();
    pvm_mytid();
    SHOW(pvm_nerr);
    for (code = 0; code < pvm_nerr; code++)
        printf("%d: %s\n", -code, pvm_errlist[code]);
    pvm_errno = 0;
    SHOW(pvm_perror("nothing wrong"));
    SHOW(pvm_perror(NULL));
    SHOW(pvm_perror(""));
    for (code = 2; code >= -40; code--) {
        pvm_errno = code;
        pvm_perror("code");
        SHOW_TEXT(pvm_strerror());
    }
    SHOW(lpvmerr("made up", PvmNoHost));
    SHOW(pvm_errno);
    SHOW(lpvmerr("made up", 5));
    SHOW(lpvmerr("made up", 0));
    pvm_setopt(PvmAutoErr, 0);
    SHOW(lpvmerr("silent", PvmNoTask));
    SHOW(pvm_errno);
    pvm_exit();
    return 0;
}
