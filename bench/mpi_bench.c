/* The same measures on MPI.
 *
 *   mpi_bench MEASURE REPETITION_MS REPETITIONS
 *   mpi_bench pair EXCHANGES REPETITIONS SIZE...
 *
 * MEASURE: latency, bandwidth, rate, hosts (two ranks, pinned to cores 0 and 1), loaded-NAME (two ranks that are not
 * pinned, while what NAME says uses the cores), ring, groups-N (all ranks),
 * collectives-N (the same over N hosts, and broadcasts). pair: ping-pong of these sizes with a fixed number of round
 * trips in a repetition.
 */
#include "bench.h"
#include <mpi.h>


enum work { PING, RATE_BLOCKING, RATE_WINDOW, RING, RING_ALL, PROVE, BARRIER, REDUCE, GATHER, BCAST, SCATTER };

/* The longest message of measures with many ranks, in bytes. */
#define MANY_BYTES_MAX (1 << 20)

/* The work that all ranks do next, at the same time; rank 0 broadcasts it. */
struct order {
    int work, size, count;
};

static int rank, ranks;
static char *data, *gathered;

static void send_to(int to, int tag, int size)
{
    MPI_Send(data, size, MPI_BYTE, to, tag, MPI_COMM_WORLD);
}

static void receive_from(int from, int tag, int size)
{
    MPI_Recv(data, size, MPI_BYTE, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void ping(struct order order)
{
    for (int i = 0; i < order.count; i++) {
        if (rank == 0) {
            send_to(1, TAG_DATA, order.size);
            receive_from(1, TAG_DATA, order.size);
        } else {
            receive_from(0, TAG_DATA, order.size);
            send_to(0, TAG_DATA, order.size);
        }
    }
}

static void rate_blocking(struct order order)
{
    for (int window = 0; window < order.count; window++) {
        for (int i = 0; i < WINDOW_MESSAGES; i++) {
            if (rank == 0)
                send_to(1, TAG_DATA, order.size);
            else
                receive_from(0, TAG_DATA, order.size);
        }
        if (rank == 0)
            receive_from(1, TAG_ANSWER, 4);
        else
            send_to(0, TAG_ANSWER, 4);
    }
}

/* As osu_mbw_mr does: posts all sends or receives of a window, then waits for all of them. */
static void rate_window(struct order order)
{
    MPI_Request requests[WINDOW_MESSAGES];
    for (int window = 0; window < order.count; window++) {
        for (int i = 0; i < WINDOW_MESSAGES; i++) {
            if (rank == 0)
                MPI_Isend(data, order.size, MPI_BYTE, 1, TAG_DATA, MPI_COMM_WORLD, &requests[i]);
            else
                MPI_Irecv(data, order.size, MPI_BYTE, 0, TAG_DATA, MPI_COMM_WORLD, &requests[i]);
        }
        MPI_Waitall(WINDOW_MESSAGES, requests, MPI_STATUSES_IGNORE);
        if (rank == 0)
            receive_from(1, TAG_ANSWER, 4);
        else
            send_to(0, TAG_ANSWER, 4);
    }
}

static void ring(struct order order)
{
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    for (int lap = 0; lap < order.count; lap++) {
        if (rank == 0)
            send_to(right, TAG_DATA, order.size);
        receive_from(left, TAG_DATA, order.size);
        if (rank != 0)
            send_to(right, TAG_DATA, order.size);
    }
}

static void ring_all(struct order order)
{
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    char *token = data + order.size;
    for (int round = 0; round < order.count; round++)
        MPI_Sendrecv(data, order.size, MPI_BYTE, right, TAG_DATA, token, order.size, MPI_BYTE, left,
                     TAG_DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void barrier(struct order order)
{
    for (int i = 0; i < order.count; i++)
        MPI_Barrier(MPI_COMM_WORLD);
}

/* As pvm_reduce: the root's numbers take part and become the result. */
static void reduce(int size)
{
    MPI_Reduce(rank == 0 ? MPI_IN_PLACE : data, data, size / (int)sizeof(double), MPI_DOUBLE, MPI_SUM, 0,
               MPI_COMM_WORLD);
}

static void gather(int size)
{
    MPI_Gather(data, size, MPI_BYTE, gathered, size, MPI_BYTE, 0, MPI_COMM_WORLD);
}

static void collect(struct order order)
{
    for (int i = 0; i < order.count; i++) {
        renew(data, order.size, i);
        (order.work == REDUCE ? reduce : gather)(order.size);
    }
}

/* Rank 0 broadcasts a new message and gathers a short answer from each rank. */
static void broadcast(struct order order)
{
    for (int i = 0; i < order.count; i++) {
        if (rank == 0)
            renew(data, order.size, i);
        MPI_Bcast(data, order.size, MPI_BYTE, 0, MPI_COMM_WORLD);
        gather(8);
    }
}

/* Rank 0 scatters a part to each rank and gathers a short answer from each. */
static void scatter(struct order order)
{
    for (int i = 0; i < order.count; i++) {
        if (rank == 0)
            renew(gathered, order.size, i);
        MPI_Scatter(gathered, order.size, MPI_BYTE, data, order.size, MPI_BYTE, 0, MPI_COMM_WORLD);
        gather(8);
    }
}

static void prove_group(void)
{
    double number = rank + 1, sum = ranks * (ranks + 1) / 2;
    memcpy(data, &number, sizeof number);
    reduce(sizeof number);
    if (rank == 0 && memcmp(data, &sum, sizeof sum) != 0)
        fail("wrong sum");
    int size = gather_sizes[1];
    fill(data, size, rank);
    gather(size);
    for (int from = 0; rank == 0 && from < ranks; from++)
        check(gathered + from * size, size, from);
}

static double timed(struct order order)
{
    MPI_Bcast(&order, 3, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = now_us();
    switch (order.work) {
    case PING: ping(order); break;
    case RATE_BLOCKING: rate_blocking(order); break;
    case RATE_WINDOW: rate_window(order); break;
    case RING: ring(order); break;
    case RING_ALL: ring_all(order); break;
    case PROVE: prove_group(); break;
    case BARRIER: barrier(order); break;
    case REDUCE:
    case GATHER: collect(order); break;
    case BCAST: broadcast(order); break;
    case SCATTER: scatter(order); break;
    }
    return now_us() - start;
}

static void measure(const char *name, struct order order, struct effort effort, double scale)
{
    int many = order.work == PING || order.work == BARRIER;
    order.count = many ? warm_exchanges(order.size) : TRIAL_EXCHANGES;
    timed(order);
    double elapsed = timed(order);
    int warm = order.work >= REDUCE ? collective_warm_exchanges(elapsed, order.count) : 0;
    MPI_Bcast(&warm, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (warm > order.count) {
        order.count = warm;
        elapsed = timed(order);
    }
    if (rank == 0)
        order.count = exchanges_for(effort, elapsed, order.count);
    MPI_Bcast(&order.count, 1, MPI_INT, 0, MPI_COMM_WORLD);
    for (int i = 0; i < effort.repetitions; i++) {
        double exchange_us = timed(order) / order.count;
        if (rank != 0)
            continue;
        if (order.work == RATE_BLOCKING || order.work == RATE_WINDOW)
            report(name, order.size, WINDOW_MESSAGES / exchange_us, "M/s");
        else
            report(name, order.work >= BARRIER ? ranks : order.size, exchange_us * scale, "us");
    }
}

static void prove(int size)
{
    struct order order = {PING, size, 1};
    if (rank == 0)
        fill(data, size, 1);
    timed(order);
    check(data, size, 1);
}

static void measure_pair(const int *sizes, int size_count, struct effort effort)
{
    for (int s = 0; s < size_count; s++) {
        prove(sizes[s]);
        measure("pingpong_mpi", (struct order){PING, sizes[s], 0}, effort, 0.5);
    }
}

/* While other processes use the cores. */
static void measure_loaded(const char *beside, struct effort effort)
{
    for (int s = 0; s < COUNT_OF(loaded_sizes); s++) {
        prove(loaded_sizes[s]);
        measure(loaded_name(beside, "mpi"), (struct order){PING, loaded_sizes[s], 0}, effort, 0.5);
    }
}

/* Measures with a fixed number of round trips. */
static void measure_exchanges(int exchanges, int repetitions, char **sizes, int size_count)
{
    for (int s = 0; s < size_count; s++) {
        struct order order = {PING, atoi(sizes[s]), exchanges};
        prove(order.size);
        timed(order);
        for (int i = 0; i < repetitions; i++) {
            double elapsed = timed(order);
            if (rank == 0)
                report("native", order.size, elapsed / exchanges / 2, "us");
        }
    }
}

static void measure_ring(struct effort effort)
{
    for (int s = 0; s < COUNT_OF(ring_sizes); s++) {
        measure("ring_mpi", (struct order){RING, ring_sizes[s], 0}, effort, 1.0 / ranks);
        measure("ringall_mpi", (struct order){RING_ALL, ring_sizes[s], 0}, effort, 1);
    }
}

static void measure_group(struct effort effort, int on_hosts)
{
    gathered = memory((size_t)ranks * gather_sizes[COUNT_OF(gather_sizes) - 1]);
    timed((struct order){PROVE, 0, 1});
    measure("barrier", (struct order){BARRIER, 0, 0}, effort, 1);
    for (int s = 0; s < COUNT_OF(reduce_sizes); s++)
        measure(name_of("reduce", reduce_sizes[s]), (struct order){REDUCE, reduce_sizes[s], 0}, effort, 1);
    for (int s = 0; s < COUNT_OF(gather_sizes); s++)
        measure(name_of("gather", gather_sizes[s]), (struct order){GATHER, gather_sizes[s], 0}, effort, 1);
    const int *bcasts = on_hosts ? bcast_sizes : local_bcast_sizes;
    int bcast_count = on_hosts ? COUNT_OF(bcast_sizes) : COUNT_OF(local_bcast_sizes);
    for (int s = 0; s < bcast_count; s++)
        measure(name_of("bcast", bcasts[s]), (struct order){BCAST, bcasts[s], 0}, effort, 1);
    for (int s = 0; !on_hosts && s < COUNT_OF(scatter_sizes); s++)
        measure(name_of("scatter", scatter_sizes[s]), (struct order){SCATTER, scatter_sizes[s], 0}, effort, 1);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int is_pair = argc > 4 && strcmp(argv[1], "pair") == 0;
    if (argc != 4 && !is_pair)
        fail("usage: mpi_bench MEASURE REPETITION_MS REPETITIONS, or mpi_bench pair EXCHANGES REPETITIONS SIZE...");
    struct effort effort = {atof(argv[2]) * 1e3, atoi(argv[3])};
    int is_loaded = strncmp(argv[1], "loaded-", 7) == 0;
    if (ranks == 2 && !is_loaded)
        pin_to_core(rank);
    data = memory(ranks == 2 ? MESSAGE_BYTES_MAX : MANY_BYTES_MAX);
    if (is_pair) {
        measure_exchanges(atoi(argv[2]), atoi(argv[3]), argv + 4, argc - 4);
    } else if (strcmp(argv[1], "latency") == 0) {
        measure_pair(latency_sizes, COUNT_OF(latency_sizes), effort);
    } else if (strcmp(argv[1], "bandwidth") == 0) {
        measure_pair(bandwidth_sizes, COUNT_OF(bandwidth_sizes), effort);
    } else if (strcmp(argv[1], "hosts") == 0) {
        measure_pair(hosts_sizes, COUNT_OF(hosts_sizes), effort);
    } else if (strcmp(argv[1], "rate") == 0) {
        measure("rate_blocking", (struct order){RATE_BLOCKING, 8, 0}, effort, 1);
        measure("rate_window", (struct order){RATE_WINDOW, 8, 0}, effort, 1);
    } else if (is_loaded) {
        measure_loaded(argv[1] + strlen("loaded-"), effort);
    } else if (strcmp(argv[1], "ring") == 0) {
        measure_ring(effort);
    } else if (tasks_of(argv[1]) == ranks) {
        measure_group(effort, strncmp(argv[1], "collectives-", 12) == 0);
    } else {
        fail("unknown measure");
    }
    MPI_Finalize();
    return 0;
}
