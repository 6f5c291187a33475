/* One point of the curve that you know. `ballast plugin test` has checked that the factor is finite
 * and pure; that it is the one you MEANT only a number worked out by hand can tell. */
#include "my_plugin.c"

#include <math.h>
#include <stdio.h>

#define FILL_IN NAN

int main(void)
{
    const struct options options = {.final = 0.2};
    const struct bl_schedule_point point = {
        .size = sizeof point, .update = 35, .warmup = 10, .updates = 110};
    const double value = factor(&options, &point);

    const double expected = FILL_IN; /* by hand: update 35 of 110, warmup 10, final 0.2 */
    if (isnan(expected)) {
        printf("my_plugin_test.c: fill in the expected value at update 35 of 110, by hand\n");
        return 1;
    }
    if (!(fabs(value - expected) <= 1e-12)) {
        printf("my_plugin_test: factor %.17g, expected %.17g\n", value, expected);
        return 1;
    }
    printf("my_plugin_test: ok\n");
    return 0;
}
