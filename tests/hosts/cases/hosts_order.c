/* Order between tasks of different hosts, by way of the daemons, while others talk as well. */
//@ timeout 60
#include "order.h"

int main(int argc, char **argv)
{
    static int routes[] = {PvmDontRoute, PvmAllowDirect};
    (void)argv;
    return order_scenario(argc, routes, 2);
}
