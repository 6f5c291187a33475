/* One weight over two updates that you know. `ballast plugin test` has checked order, rounding and
 * zero learning rate; that the rule is the one you MEANT only a number worked out by hand can tell.
 */
#include "my_plugin.c"

#include <math.h>
#include <stdio.h>

#define FILL_IN NAN

int main(void)
{
    const struct options options = {.momentum = 0.5};
    float weight = 1, gradient = 2, buffer = 0;
    float *state[1] = {&buffer};
    struct bl_update u = {.size = sizeof u,
                          .step = 1,
                          .count = 1,
                          .weight = &weight,
                          .gradient = &gradient,
                          .state = state,
                          .gradient_scale = 1,
                          .learning_rate = 0.125,
                          .weight_decay = 0,
                          .epsilon = NAN,
                          .update_scale = 1};
    apply(&options, &u, 0, 1);
    u.step = 2;
    apply(&options, &u, 0, 1);

    /* by hand: w = 1, g = 2 both times, lr = 1/8, momentum = 1/2, no decay */
    const double expected = FILL_IN;
    if (isnan(expected)) {
        printf("my_plugin_test.c: fill in the expected value of the weight after two updates\n");
        return 1;
    }
    if ((double)weight != expected) { /* all numbers here are exact in fp32 */
        printf("my_plugin_test: weight %.9g, expected %.9g\n", (double)weight, expected);
        return 1;
    }
    printf("my_plugin_test: ok\n");
    return 0;
}
