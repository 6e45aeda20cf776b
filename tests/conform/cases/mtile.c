/* Debian's mtile computes a tile of the Mandelbrot set for the task that sends it the corners. */
//@ needs $DEBIAN_PVM/bin/mtile
#include "case.h"

int main(void)
{
    int tid, i, j;
    static char tile[12 * 24], program[4096];
    case_begin();
    pvm_mytid();
    snprintf(program, sizeof program, "%s/bin/mtile", getenv("DEBIAN_PVM"));
    SHOW(pvm_spawn(program, NULL, PvmTaskDefault, "", 1, &tid));
    pvm_packf("%+ %lf %lf %lf %lf %d %d", PvmDataDefault, -2.0, -1.2, 1.0, 1.2, 24, 12);
    SHOW(pvm_send(tid, 1));
    SHOW(case_receive(tid, -1, 5) > 0);
    SHOW(pvm_bufinfo(pvm_getrbuf(), &i, &j, NULL));
    SHOW(i);
    SHOW(pvm_unpackf("%*c", 12 * 24, tile));
    for (i = 0; i < 12; i++) {
        for (j = 0; j < 24; j++)
            printf("%4d", tile[i * 24 + j] & 255);
        printf("\n");
    }
    pvm_kill(tid);
    case_gone(tid);
    pvm_exit();
    return 0;
}
