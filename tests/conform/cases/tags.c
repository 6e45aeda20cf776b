/* pvmnametag of every reserved tag. */
#include "case.h"

int main(void)
{
    int range, number, found;
    case_begin();
    for (range = 1; range <= 4; range++)
        for (number = 0; number <= 45; number++) {
            char *name = pvmnametag(0x80000000 | range << 16 | number, &found);
            if (found)
                printf("%d %d %s\n", range, number, name);
            else
                printf("%d %d no name\n", range, number);
        }
    return 0;
}
