#include "base/clock.h"

#include <time.h>

static double seconds(clockid_t id)
{
    struct timespec t = {0, 0};
    clock_gettime(id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double bl_clock(void)
{
    return seconds(CLOCK_MONOTONIC);
}

double bl_clock_wall(void)
{
    return seconds(CLOCK_REALTIME);
}
