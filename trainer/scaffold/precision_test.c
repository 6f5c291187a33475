/* One dial that you know. `ballast plugin test` has checked that the table has known values; that
 * they are the ones you MEANT only you can tell. */
#include "my_plugin.c"

#include <stdio.h>
#include <string.h>

#define FILL_IN 0

int main(void)
{
    struct bl_precision dials;
    memset(&dials, 0, sizeof dials);
    dials.size = sizeof dials;
    const struct options options = {.working = BF16};
    fill(&options, &dials);

    const uint32_t expected = FILL_IN; /* BL_FP32 or BL_BF16: compute of the matrices */
    if (expected == 0) {
        printf("my_plugin_test.c: fill in the expected value of the dial matrix.compute\n");
        return 1;
    }
    if (dials.dial[BL_GROUP_MATRIX][BL_DIAL_COMPUTE] != expected) {
        printf("my_plugin_test: matrix.compute is %u, expected %u\n",
               (unsigned)dials.dial[BL_GROUP_MATRIX][BL_DIAL_COMPUTE], (unsigned)expected);
        return 1;
    }
    printf("my_plugin_test: ok\n");
    return 0;
}
