/* What the fuzz targets share. A target reads one input and checks the promises of the reader:
 * any bytes give an answer, an error is one line with a code of the program, memory is given back.
 *
 * libFuzzer (make fuzz) or replay.c calls LLVMFuzzerTestOneInput; a broken promise aborts. */
#ifndef BL_FUZZ_TARGET_H
#define BL_FUZZ_TARGET_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_REQUIRE(condition)                                                                    \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);              \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* A file without a disk: descriptor `number` is /proc/self/fd/<number>, one in a process. */
static inline void fuzz_file_write(int number, const void *bytes, size_t size)
{
    if (lseek(number, 0, SEEK_CUR) < 0) {
        int fd = memfd_create("fuzz", 0);
        FUZZ_REQUIRE(fd >= 0 && dup2(fd, number) == number);
        close(fd);
    }
    FUZZ_REQUIRE(ftruncate(number, 0) == 0);
    FUZZ_REQUIRE(pwrite(number, bytes, size, 0) == (ssize_t)size);
}

/* `code`: the one that this reader uses beside BL_EXIT_FAILED (no memory). */
static inline void fuzz_check_error(const struct bl_error *err, int code)
{
    FUZZ_REQUIRE(err->code == code || err->code == BL_EXIT_FAILED);
    FUZZ_REQUIRE(err->text[0] != '\0');
    for (const char *p = err->text; *p; p++)
        FUZZ_REQUIRE((unsigned char)*p >= 0x20 && *p != 0x7f);
}

#endif
