/* A neighbour of the measured programs: it uses a core all the time, or RUN_US of every PERIOD_US.
 *
 *   busy [RUN_US PERIOD_US]
 */
#include "bench.h"

int main(int argc, char **argv)
{
    double run = argc == 3 ? atof(argv[1]) : 1, period = argc == 3 ? atof(argv[2]) : 1;
    for (;;) {
        double start = now_us();
        while (now_us() - start < run)
            ;
        if (period > run)
            usleep((useconds_t)(period - run));
    }
}
