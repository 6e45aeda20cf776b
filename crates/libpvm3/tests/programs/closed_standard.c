/* A program that was started with descriptors 0, 1 and 2 closed: the library uses none of these numbers for its
 * own descriptors, so the program cannot write into one of them by mistake. */
#include "check.h"
#include <errno.h>
#include <fcntl.h>

static int errors;

static void say(const char *text)
{
    if (write(errors, text, strlen(text)) < 0)
        _exit(2);
    _exit(1);
}

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition))                                                                          \
            say("failed: " #condition "\n");                                                       \
    } while (0)

/* Writes to the closed standard descriptors, as a careless program does. */
static void write_to_standard(void)
{
    int descriptor;

    for (descriptor = 0; descriptor < 3; descriptor++) {
        errno = 0;
        if (fcntl(descriptor, F_GETFD) != -1 || errno != EBADF)
            say(descriptor == 0 ? "0 is open\n" : descriptor == 1 ? "1 is open\n" : "2 is open\n");
    }
    printf("into a socket?\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    char path[4096], *arguments[] = { "talk", NULL };
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    struct timeval limit = { 10, 0 };
    int me, child, value = 0, *list;

    (void)argv;
    errors = fcntl(2, F_DUPFD_CLOEXEC, 10);
    if (argc > 1) {
        me = pvm_mytid();
        CHECK(pvm_recv(pvm_parent(), 1) > 0);
        CHECK(send_int(pvm_parent(), 2, 5) == 0);
        CHECK(pvm_exit() == 0);
        return 0;
    }
    CHECK(length > 0);
    path[length] = 0;
    close(0);
    close(1);
    close(2);
    me = pvm_mytid();
    EXPECT(me > 0);
    write_to_standard();
    EXPECT(pvm_spawn(path, arguments, PvmTaskDefault, "", 1, &child) == 1);
    write_to_standard();
    EXPECT(send_int(child, 1, 1) == 0);
    EXPECT(pvm_joingroup("closed") == 0);
    write_to_standard();
    EXPECT(pvm_trecv(child, 2, &limit) > 0 && pvm_upkint(&value, 1, 1) == 0 && value == 5);
    EXPECT(pvm_getfds(&list) == 1 && list[0] > 2);
    write_to_standard();
    limit.tv_sec = 0;
    limit.tv_usec = 20000;
    EXPECT(pvm_trecv(-1, 99, &limit) == 0);
    write_to_standard();
    EXPECT(pvm_barrier("closed", 1) == 0);
    EXPECT(pvm_exit() == 0);
    EXPECT(pvm_mytid() > 0 && pvm_exit() == 0);
    write_to_standard();
    return 0;
}
