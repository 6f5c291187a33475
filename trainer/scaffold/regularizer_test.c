/* One row of logits whose value you know. `ballast plugin test` has checked the derivatives; that
 * the value is the one you MEANT only a number worked out by hand can tell. */
#include "my_plugin.c"

#include <math.h>
#include <stdio.h>

#define FILL_IN NAN

int main(void)
{
    /* z = (1, 2, 6), target 2: mean 3, m2 = 4 + 1 + 9 = 14, max 6 */
    const double mean = 3, m2 = 14, max = 6, target = 6;
    const double lse = log(exp(1.0) + exp(2.0) + exp(6.0));
    const int32_t argmax = 2;
    const uint8_t valid = 1;
    const struct bl_row_stats stats = {.size = sizeof stats,
                                       .count = 1,
                                       .vocab = 3,
                                       .lse = &lse,
                                       .target = &target,
                                       .mean = &mean,
                                       .m2 = &m2,
                                       .max = &max,
                                       .argmax = &argmax,
                                       .valid = &valid};
    double value = 0, d[6] = {0};
    const struct bl_row_grads out = {.size = sizeof out,
                                     .value = &value,
                                     .d_lse = &d[0],
                                     .d_target = &d[1],
                                     .d_mean = &d[2],
                                     .d_m2 = &d[3],
                                     .d_max = &d[4],
                                     .d_pz = &d[5]};
    const struct options options = {.coefficient = 1};
    rows(&options, &stats, &out, 0, 1);

    const double expected = FILL_IN; /* by hand: the value for z = (1, 2, 6) */
    if (isnan(expected)) {
        printf("my_plugin_test.c: fill in the expected value for z = (1, 2, 6), by hand\n");
        return 1;
    }
    if (!(fabs(value - expected) <= 1e-12 * fabs(expected))) {
        printf("my_plugin_test: value %.17g, expected %.17g\n", value, expected);
        return 1;
    }
    printf("my_plugin_test: ok\n");
    return 0;
}
