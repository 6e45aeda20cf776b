/* The bare limit between two hosts: two pinned processes and one TCP connection.
 *
 *   tcp serve sleeping|spinning PORT
 *   tcp connect sleeping|spinning PORT ADDRESS REPETITION_MS REPETITIONS
 *   tcp pair sleeping|spinning PORT ADDRESS EXCHANGES REPETITIONS SIZE...
 *
 * A waiting process sleeps in the kernel, or polls the socket. pair: ping-pong of these sizes with a fixed number of
 * round trips in a repetition.
 */
#include "bench.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#define CONNECT_TRIES 200

static char *data;
static int spinning;

/* The work that the other side does next: `count` exchanges of `size` bytes; a size of 0 ends it. */
struct order {
    int size, count;
};

static void put(int connection, const void *from, size_t left)
{
    const char *place = from;
    while (left > 0) {
        ssize_t done = send(connection, place, left, MSG_NOSIGNAL);
        if (done < 0 && errno != EAGAIN && errno != EINTR)
            fail("cannot send");
        if (done > 0) {
            place += done;
            left -= done;
        }
    }
}

static void get(int connection, void *to, size_t left)
{
    char *place = to;
    while (left > 0) {
        ssize_t done = recv(connection, place, left, 0);
        if (done == 0 || (done < 0 && errno != EAGAIN && errno != EINTR))
            fail("cannot receive");
        if (done > 0) {
            place += done;
            left -= done;
        }
    }
}

static void prepare(int connection)
{
    int one = 1;
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (spinning)
        fcntl(connection, F_SETFL, O_NONBLOCK);
}

static void serve(struct sockaddr_in address)
{
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 1) != 0)
        fail("cannot listen");
    int connection = accept(listener, NULL, NULL);
    if (connection < 0)
        fail("cannot accept");
    prepare(connection);
    for (;;) {
        struct order order;
        get(connection, &order, sizeof order);
        if (order.size == 0)
            return;
        for (int i = 0; i < order.count; i++) {
            get(connection, data, order.size);
            put(connection, data, order.size);
        }
    }
}

static double timed(int connection, int size, int count)
{
    struct order order = {size, count};
    put(connection, &order, sizeof order);
    double start = now_us();
    for (int i = 0; i < count; i++) {
        put(connection, data, size);
        get(connection, data, size);
    }
    return now_us() - start;
}

static int open_connection(struct sockaddr_in address)
{
    for (int turn = 0; turn < CONNECT_TRIES; turn++) {
        int connection = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(connection, (struct sockaddr *)&address, sizeof address) == 0)
            return connection;
        close(connection);
        usleep(10000);
    }
    fail("cannot connect");
    return -1;
}

static void measure(struct sockaddr_in address, struct effort effort)
{
    int connection = open_connection(address);
    prepare(connection);
    for (int s = 0; s < COUNT_OF(hosts_sizes); s++) {
        int size = hosts_sizes[s], count = warm_exchanges(size);
        fill(data, size, s);
        timed(connection, size, 1);
        check(data, size, s);
        count = exchanges_for(effort, timed(connection, size, count), count);
        for (int i = 0; i < effort.repetitions; i++)
            report("pingpong", size, timed(connection, size, count) / count / 2, "us");
    }
    struct order end = {0, 0};
    put(connection, &end, sizeof end);
}

/* Measures with a fixed number of round trips. */
static void measure_exchanges(struct sockaddr_in address, int exchanges, int repetitions, char **sizes, int size_count)
{
    int connection = open_connection(address);
    prepare(connection);
    for (int s = 0; s < size_count; s++) {
        int size = atoi(sizes[s]);
        fill(data, size, s);
        timed(connection, size, exchanges);
        check(data, size, s);
        for (int i = 0; i < repetitions; i++)
            report("native", size, timed(connection, size, exchanges) / exchanges / 2, "us");
    }
    struct order end = {0, 0};
    put(connection, &end, sizeof end);
}

int main(int argc, char **argv)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    if (argc < 4)
        fail("usage: tcp serve|connect|pair sleeping|spinning PORT [ADDRESS ...]");
    spinning = strcmp(argv[2], "spinning") == 0;
    address.sin_port = htons((unsigned short)atoi(argv[3]));
    data = memory(MESSAGE_BYTES_MAX);
    if (argc == 4) {
        pin_to_core(1);
        serve(address);
    } else if (argc > 7 && strcmp(argv[1], "pair") == 0 && inet_pton(AF_INET, argv[4], &address.sin_addr) == 1) {
        pin_to_core(0);
        measure_exchanges(address, atoi(argv[5]), atoi(argv[6]), argv + 7, argc - 7);
    } else if (argc == 7 && inet_pton(AF_INET, argv[4], &address.sin_addr) == 1) {
        pin_to_core(0);
        measure(address, (struct effort){atof(argv[5]) * 1e3, atoi(argv[6])});
    } else {
        fail("no such address");
    }
    return 0;
}
