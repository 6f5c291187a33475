/* What the benchmarks of collectives share: sizes, repeats, output, bytes on the loopback device.
 */
#ifndef BALLAST_BENCH_RING_H
#define BALLAST_BENCH_RING_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const size_t bench_bytes[] = {
    (size_t)1 << 10, (size_t)1 << 14, (size_t)1 << 18,
    (size_t)1 << 22, (size_t)1 << 26, (size_t)1 << 28,
};
enum { BENCH_SIZES = sizeof bench_bytes / sizeof *bench_bytes, BENCH_MOST = 300 };

static inline int bench_repeats(size_t bytes)
{
    size_t n = ((size_t)1 << 28) / bytes;
    return n < 5 ? 5 : n > BENCH_MOST ? BENCH_MOST : (int)n;
}

static inline double bench_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Bytes sent over the loopback device of this network namespace, headers included. */
static inline uint64_t bench_wire(void)
{
    char line[512];
    uint64_t sent = 0;
    FILE *f = fopen("/proc/net/dev", "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        char *at = strstr(line, "lo:");
        if (at != NULL)
            sscanf(at + 3, "%*u %*u %*u %*u %*u %*u %*u %*u %" SCNu64, &sent);
    }
    if (f != NULL)
        fclose(f);
    return sent;
}

static inline int bench_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* One line: method, processes, bytes, median in microseconds, bytes on the wire of one run. */
static inline void bench_line(const char *method, uint32_t processes, size_t bytes, double *seconds,
                              int repeats, uint64_t wire)
{
    qsort(seconds, (size_t)repeats, sizeof *seconds, bench_compare);
    printf("%s %" PRIu32 " %zu %.1f %" PRIu64 "\n", method, processes, bytes,
           1e6 * seconds[repeats / 2], wire / (uint64_t)repeats);
    fflush(stdout);
}

#endif
