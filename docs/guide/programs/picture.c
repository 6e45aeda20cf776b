/* picture: a farm that draws the Mandelbrot set with letters. The master hands out lines, the workers compute them. */
#include <pvm3.h>
#include <stdio.h>
#include <string.h>

enum { WORKERS = 4, LINES = 21, COLUMNS = 64, TAG_LINE = 1, TAG_DONE = 2, TAG_STOP = 3 };

static void compute(int line, char *text)
{
    static const char shades[] = " .:-=+*%@#";
    int column;
    for (column = 0; column < COLUMNS; column++) {
        double cx = -2.2 + 3.2 * column / COLUMNS, cy = -1.2 + 2.4 * line / (LINES - 1), x = 0, y = 0, old;
        int steps = 0;
        while (steps < 1000 && x * x + y * y < 4) {
            old = x;
            x = x * x - y * y + cx;
            y = 2 * old * y + cy;
            steps++;
        }
        text[column] = shades[steps < 9 ? steps : steps < 1000 ? 8 : 9];
    }
    text[COLUMNS] = '\0';
}

static void work(int master)
{
    char text[COLUMNS + 1];
    int line, tag, buffer;
    for (;;) {
        buffer = pvm_recv(master, -1);              /* a message from the master, with any tag */
        pvm_bufinfo(buffer, NULL, &tag, NULL);
        if (tag == TAG_STOP)
            return;
        pvm_upkint(&line, 1, 1);
        compute(line, text);
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&line, 1, 1);
        pvm_pkstr(text);
        pvm_send(master, TAG_DONE);
    }
}

static void hand_out(int worker, int line)
{
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&line, 1, 1);
    pvm_send(worker, line < LINES ? TAG_LINE : TAG_STOP);
}

static int lead(void)
{
    static char picture[LINES][COLUMNS + 1];
    int workers[WORKERS], next, done, line, worker, buffer;
    if (pvm_spawn("picture", NULL, PvmTaskDefault, "", WORKERS, workers) < WORKERS) {
        fprintf(stderr, "picture: the workers could not be started\n");
        return 1;
    }
    for (next = 0; next < WORKERS; next++)
        hand_out(workers[next], next);
    for (done = 0; done < LINES; done++) {
        buffer = pvm_recv(-1, TAG_DONE);            /* from any worker: whoever is ready gets the next line */
        pvm_bufinfo(buffer, NULL, NULL, &worker);
        pvm_upkint(&line, 1, 1);
        pvm_upkstr(picture[line]);
        hand_out(worker, next++);
    }
    for (line = 0; line < LINES; line++)
        puts(picture[line]);
    return 0;
}

int main(void)
{
    int master, status = 0;
    pvm_mytid();                                    /* the first call makes this process a task */
    master = pvm_parent();
    if (master > 0)
        work(master);
    else
        status = lead();
    pvm_exit();
    return status;
}
