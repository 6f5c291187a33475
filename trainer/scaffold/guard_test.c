/* Three norms whose last verdict you know. `ballast plugin test` has checked extreme norms and the
 * saved state; that the rule is the one you MEANT only a number worked out by hand can tell. */
#include "my_plugin.c"

#include <stdio.h>

#define FILL_IN NAN

int main(void)
{
    const struct options options = {.factor = 2};
    const double norms[3] = {1, 1, 8};
    struct guard guard = {.options = &options};
    struct bl_verdict out = {.size = sizeof out, .scale = 1};
    struct bl_error err = {.size = sizeof err};
    uint32_t changed = 0;
    for (int i = 0; i < 3; i++) {
        const struct bl_guard_input in = {
            .size = sizeof in, .step = (uint64_t)i + 1, .loss = 3, .norm = norms[i]};
        out.scale = 1;
        gradient(&guard, NULL, &in, &out, &changed, &err);
        settle(&guard, out.skip);
    }

    const double expected = FILL_IN; /* by hand: factor 2, norms 1, 1, 8: the scale of the third */
    if (isnan(expected)) {
        printf("my_plugin_test.c: fill in the expected value of the scale for norms 1, 1, 8\n");
        return 1;
    }
    if (!(fabs(out.scale - expected) <= 1e-12)) {
        printf("my_plugin_test: scale %.17g, expected %.17g\n", out.scale, expected);
        return 1;
    }
    printf("my_plugin_test: ok\n");
    return 0;
}
