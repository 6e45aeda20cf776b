/* Opens TAP devices for the emulated Ethernet: the system call for it needs unsafe code, which `trials` does not have.
 *   ports PROCESS...
 * makes a TAP device `eth0` in the network namespace of each process, and sends the descriptors, one with each byte, to
 * its standard input, which is a socket. If this fails, it prints why.
 */
#define _GNU_SOURCE
#include "../port.h"
#include <sys/socket.h>
#include <sys/uio.h>

static void pass(int port)
{
    char byte = 0;
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec data = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    memset(&control, 0, sizeof control);
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&control.header), &port, sizeof port);
    if (sendmsg(0, &message, 0) != 1)
        fail("sendmsg");
    close(port);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        pass(open_port(argv[i]));
    return 0;
}
