/* Attacks of a second user of the machine.
 *   stranger connect SOCKET   prints the result of a connection: "denied", "closed", "bytes N", "silent"
 *   stranger listen SOCKET    acts as a daemon: prints "ready", then "connection N" for each connection,
 *                             with the number of bytes received on it
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { WAIT_MILLISECONDS = 2000 };

static int socket_at(const char *path, struct sockaddr_un *address)
{
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    strncpy(address->sun_path, path, sizeof address->sun_path - 1);
    return socket(AF_UNIX, SOCK_STREAM, 0);
}

/* Returns the number of bytes that arrive within a short time; 0 if the other side closes the connection, -1 if
 * nothing happens. */
static long listen_to(int descriptor)
{
    char bytes[4096];
    struct pollfd wanted = {descriptor, POLLIN, 0};
    if (poll(&wanted, 1, WAIT_MILLISECONDS) <= 0)
        return -1;
    ssize_t count = recv(descriptor, bytes, sizeof bytes, 0);
    return count < 0 ? 0 : count;
}

static int try_to_connect(const char *path)
{
    struct sockaddr_un address;
    int descriptor = socket_at(path, &address);
    if (connect(descriptor, (struct sockaddr *)&address, sizeof address) != 0) {
        puts(errno == EACCES || errno == EPERM ? "denied" : strerror(errno));
        return 0;
    }
    long count = listen_to(descriptor);
    if (count < 0)
        puts("silent");
    else if (count == 0)
        puts("closed");
    else
        printf("bytes %ld\n", count);
    return 0;
}

static int play_daemon(const char *path)
{
    struct sockaddr_un address;
    int descriptor = socket_at(path, &address);
    if (bind(descriptor, (struct sockaddr *)&address, sizeof address) != 0 || chmod(path, 0777) != 0 ||
        listen(descriptor, 8) != 0) {
        perror(path);
        return 1;
    }
    puts("ready");
    fflush(stdout);
    for (;;) {
        int peer = accept(descriptor, NULL, NULL);
        if (peer < 0)
            return 1;
        long count = listen_to(peer);
        printf("connection %ld\n", count < 0 ? 0 : count);
        fflush(stdout);
        close(peer);
    }
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "connect") == 0)
        return try_to_connect(argv[2]);
    if (argc == 3 && strcmp(argv[1], "listen") == 0)
        return play_daemon(argv[2]);
    fprintf(stderr, "usage: stranger connect|listen SOCKET\n");
    return 2;
}
