/* Two rows whose metric you know. `ballast plugin test` has checked that metrics are finite and
 * nothing is written to; that the number is the one you MEANT only one worked out by hand can tell.
 */
#include "my_plugin.c"

#include <stdio.h>

#define FILL_IN NAN

static double reported; /* what the monitor gave to host->metric */

static void metric(const struct bl_host *host, const char *name, double value)
{
    (void)host;
    (void)name;
    reported = value;
}

static int32_t all_reduce(const struct bl_host *host, double *values, uint64_t n,
                          struct bl_error *err)
{
    (void)host;
    (void)values;
    (void)n;
    (void)err;
    return 0; /* the sum over one rank */
}

int main(void)
{
    const struct bl_host host = {.size = sizeof host, .metric = metric, .all_reduce = all_reduce};
    const double m2[3] = {2, 8, 1e30}; /* the third row is masked */
    const uint8_t valid[3] = {1, 1, 0};
    const struct bl_row_stats rows = {
        .size = sizeof rows, .count = 3, .vocab = 2, .m2 = m2, .valid = valid};
    const struct bl_monitor_input in = {.size = sizeof in, .step = 1, .rows = &rows, .targets = 2};
    struct bl_error err = {.size = sizeof err};
    if (observe(NULL, &host, &in, &err) != 0)
        return 1;

    const double expected = FILL_IN; /* by hand: V = 2, m2 = 2 and 8 */
    if (isnan(expected)) {
        printf("my_plugin_test.c: fill in the expected value of the metric for m2 = 2, 8, V = 2\n");
        return 1;
    }
    if (!(fabs(reported - expected) <= 1e-12)) {
        printf("my_plugin_test: metric %.17g, expected %.17g\n", reported, expected);
        return 1;
    }
    printf("my_plugin_test: ok\n");
    return 0;
}
