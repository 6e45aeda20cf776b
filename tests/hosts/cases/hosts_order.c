/* Order between tasks of different hosts along the default route, while other tasks send as well.
 */
//@ timeout 60
#include "all_to_all.h"

int main(int argc, char **argv)
{
    static int routes[] = {PvmDontRoute, PvmAllowDirect};
    (void)argv;
    return order_scenario(argc, routes, 2);
}
