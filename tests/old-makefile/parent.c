/* Spawns children by their names without a path: one is in the user's directory for programs, one in PVM's. */
#include <pvm3.h>
#include <stdio.h>

static int answer_of(char *program, int number)
{
    int tid, answer = -1;
    if (pvm_spawn(program, (char **)0, PvmTaskDefault, "", 1, &tid) != 1) {
        printf("%s does not start: %d\n", program, tid);
        return -1;
    }
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&number, 1, 1);
    pvm_send(tid, 1);
    pvm_recv(tid, 2);
    pvm_upkint(&answer, 1, 1);
    return answer;
}

int main(void)
{
    printf("C doubles 21: %d\n", answer_of("old_child", 21));
    printf("Fortran triples 14: %d\n", answer_of("old_fchild", 14));
    pvm_exit();
    return 0;
}
