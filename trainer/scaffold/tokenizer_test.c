/* One text whose ids you know. `ballast plugin test` has checked that text comes back and that
 * nothing is written into too little room; that the ids are the ones you MEANT only you can tell.
 */
#include "my_plugin.c"

#include <stdio.h>

#define FILL_IN (-1)

int main(void)
{
    struct bl_error err = {.size = sizeof err};
    int32_t ids[8];
    uint64_t count = 0;
    if (encode(NULL, "aZ", 2, ids, 8, &count, &err) != 0 || count == 0)
        return 1;

    const int expected = FILL_IN; /* by hand: the last id of "aZ" */
    if (expected < 0) {
        printf("my_plugin_test.c: fill in the expected value, the last id of \"aZ\"\n");
        return 1;
    }
    if (ids[count - 1] != expected) {
        printf("my_plugin_test: id %d, expected %d\n", (int)ids[count - 1], expected);
        return 1;
    }
    printf("my_plugin_test: ok\n");
    return 0;
}
