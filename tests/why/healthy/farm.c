//@ tasks: 4
/* A master that takes results of any worker, and workers that compute now and then. */
#include "../fault.h"

int main(void)
{
    begin();
    for (int job = 0; job < 400; job++) {
        if (self == 0) {
            for (int worker = 1; worker < tasks; worker++)
                tell(worker, 1);
            for (int worker = 1; worker < tasks; worker++)
                await(-1, 2);
        } else {
            await(0, 1);
            if (job % (20 * self) == 0)
                usleep(50000 * self);
            tell(0, 2);
        }
    }
    return 0;
}
