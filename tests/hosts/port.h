/* The ports of programs that connect hosts: TAP devices in the hosts' network namespaces. */
#ifndef PORT_H
#define PORT_H

#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static void fail(const char *what)
{
    printf("%s: %s\n", what, strerror(errno));
    exit(1);
}

/* Opens a TAP device `eth0` in the network namespace of a process. The caller stays in this namespace. */
static int open_port(const char *process)
{
    char path[64];
    struct ifreq request;
    snprintf(path, sizeof path, "/proc/%s/ns/net", process);
    int space = open(path, O_RDONLY | O_CLOEXEC);
    if (space < 0 || setns(space, CLONE_NEWNET) != 0)
        fail(path);
    close(space);
    int port = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    memset(&request, 0, sizeof request);
    request.ifr_flags = IFF_TAP | IFF_NO_PI;
    strcpy(request.ifr_name, "eth0");
    if (port < 0 || ioctl(port, TUNSETIFF, &request) != 0)
        fail("/dev/net/tun");
    return port;
}

#endif
