/* MPI_Allreduce of fp32, for comparison with collectives.c: mpirun -n P collectives_mpi NAME */
#include <mpi.h>

#include "ring.h"

int main(int argc, char **argv)
{
    int rank, processes;
    double seconds[BENCH_MOST];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    float *x = calloc(1, bench_bytes[BENCH_SIZES - 1]);
    if (x == NULL)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (size_t s = 0; s < BENCH_SIZES; s++) {
        int n = (int)(bench_bytes[s] / sizeof *x), repeats = bench_repeats(bench_bytes[s]);
        MPI_Allreduce(MPI_IN_PLACE, x, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        uint64_t wire = bench_wire();
        for (int r = 0; r < repeats; r++) {
            double begin = bench_clock();
            MPI_Allreduce(MPI_IN_PLACE, x, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
            seconds[r] = bench_clock() - begin;
        }
        if (rank == 0)
            bench_line(argc > 1 ? argv[1] : "mpi", (uint32_t)processes, bench_bytes[s], seconds,
                       repeats, bench_wire() - wire);
    }
    free(x);
    MPI_Finalize();
    return 0;
}
