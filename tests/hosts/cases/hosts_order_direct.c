/* Order while routes become direct: what goes the new way must not overtake what goes the old. */
//@ ours-only D3: skip
//@ timeout 60
#include "order.h"

int main(int argc, char **argv)
{
    static int routes[] = {PvmAllowDirect, PvmRouteDirect, PvmAllowDirect, PvmDontRoute};
    (void)argv;
    return order_scenario(argc, routes, 4);
}
