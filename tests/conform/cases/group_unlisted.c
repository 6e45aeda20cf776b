/* Functions of the group library that its manual does not mention. */
#include "group.h"

static void hosts(char *group, int host)
{
    int coordinator = -77, members = -77, hosts = -77, result;
    result = pvm_grphostinfo(group, host, &coordinator, &members, &hosts);
    printf("pvm_grphostinfo: %d, t%x, %d members, %d hosts\n", result, coordinator, members, hosts);
}

static void all_hosts(char *group)
{
    int *coordinators = NULL, *members = NULL, hosts = -77, result, host;
    result = pvm_grpvhostinfo(group, &coordinators, &members, &hosts);
    printf("pvm_grpvhostinfo: %d, %d hosts\n", result, hosts);
    for (host = 0; result >= 0 && host < hosts; host++)
        printf("  t%x, %d members\n", coordinators[host], members[host]);
}

int main(int argc, char **argv)
{
    int tids[2], own, host;
    case_begin();
    if (argc > 1)
        return group_child();
    SHOW(gstid);
    SHOW(pvmgs_tmout == NULL);
    own = pvm_mytid();
    host = pvm_tidtohost(own);
    printf("t%x\n", own);
    group_spawn(2, tids);
    printf("t%x t%x\n", tids[0], tids[1]);
    hosts("g", host);
    all_hosts("g");
    SHOW(group_do(tids[1], JOIN, "g", 0, 0));
    SHOW(group_do(tids[0], JOIN, "g", 0, 0));
    hosts("g", host);
    hosts("g", own);
    hosts("g", 0);
    hosts("g", 0x80000);
    all_hosts("g");
    SHOW(pvm_joingroup("g"));
    hosts("g", host);
    all_hosts("g");
    SHOW(gs_getgstid() > 0);
    SHOW(gstid == gs_getgstid());
    group_end(2, tids);
    pvm_gsdump();
    pvm_exit();
    return 0;
}
