/* Order while direct routes are being made: messages on the new route must not overtake those on the old one. */
//@ ours-only D3: skip
//@ timeout 60
#include "all_to_all.h"

int main(int argc, char **argv)
{
    static int routes[] = {PvmAllowDirect, PvmRouteDirect, PvmAllowDirect, PvmDontRoute};
    (void)argv;
    return order_scenario(argc, routes, 4);
}
