/* How much memory ranks of an MPI and their launcher use: `mpi_memory`, the counterpart of pvm_memory.c.
 *
 * All ranks send a message to each other. Then one rank after the other reports its resident memory, while all others
 * wait in MPI_Recv.
 */
#include "memory.h"
#include <mpi.h>

int main(int argc, char **argv)
{
    int rank, ranks;
    double number = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int other = 0; other < ranks; other++)
        if (other != rank)
            MPI_Send(&number, 1, MPI_DOUBLE, other, TAG_DATA, MPI_COMM_WORLD);
    for (int other = 0; other < ranks; other++)
        if (other != rank)
            MPI_Recv(&number, 1, MPI_DOUBLE, other, TAG_DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank > 0)
        MPI_Recv(&number, 1, MPI_DOUBLE, rank - 1, TAG_ORDER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    struct resident own = resident_of(getpid());
    report("memory_task", ranks, own.all, "KiB");
    report("memory_alone", ranks, own.alone, "KiB");
    if (rank == 0)
        report("memory_daemon", ranks, resident_of_ancestors(runner_of_benchmark()), "KiB");
    if (rank < ranks - 1)
        MPI_Send(&number, 1, MPI_DOUBLE, rank + 1, TAG_ORDER, MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
