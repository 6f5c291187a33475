/* One target that you know. `ballast plugin test` has checked ranges, repetition and threads; that
 * the tokens are the ones you MEANT only a number worked out by hand can tell. */
#include "my_plugin.c"

#include <stdio.h>

#define FILL_IN (-2)

int main(void)
{
    const struct bl_run_info info = {.size = sizeof info, .context = 4};
    const struct bl_host host = {.size = sizeof host, .info = &info};
    const struct options options = {.ids = 5, .sequences = 10};
    struct source source = {.host = &host, .options = &options};
    struct bl_error err = {.size = sizeof err};
    int32_t tokens[4], targets[4];
    if (read_sequence(&source, 8, 5, tokens, targets, &err) != 0)
        return 1;

    const int expected = FILL_IN; /* by hand: sequence 8 of 5 ids, context 4: the last target */
    if (expected == -2) {
        printf("my_plugin_test.c: fill in the expected value of the last target of sequence 8\n");
        return 1;
    }
    if (targets[3] != expected) {
        printf("my_plugin_test: target %d, expected %d\n", (int)targets[3], expected);
        return 1;
    }
    printf("my_plugin_test: ok\n");
    return 0;
}
