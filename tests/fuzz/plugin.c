/* Fuzz target: the bytes of a plugin file, before any of them is code.
 *
 * Input: the file. */
#include "plugin/loader.h"
#include "target.h"

enum { FILE_NUMBER = 200 };
#define FILE_PATH "/proc/self/fd/200"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bl_error err = BL_ERROR_INIT;
    int taken = 0;

    fuzz_file_write(FILE_NUMBER, data, size);
    if (bl_plugin_precheck(FILE_PATH, 0, &err) != 0) {
        fuzz_check_error(&err, BL_EXIT_PLUGIN);
        return 0;
    }
    for (uint32_t kind = 1; kind < BL_KIND_COUNT; kind++) {
        if (bl_plugin_precheck(FILE_PATH, kind, &err) == 0)
            taken++;
        else
            fuzz_check_error(&err, BL_EXIT_PLUGIN);
    }
    FUZZ_REQUIRE(taken == 1);
    return 0;
}
