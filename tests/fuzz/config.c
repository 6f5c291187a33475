/* Fuzz target: a configuration, its overrides and an included file.
 *
 * Input: text of the file, and after lines "%%": overrides, one a line; the file that
 * @include "201" names. What is read is written out as the effective configuration, which must
 * read back to the same one. */
#include "config/config.h"
#include "target.h"

#include "base/strings.h"

enum { FILE_NUMBER = 200, PART_NUMBER = 201, OVERRIDES = 8 };
#define FILE_PATH "/proc/self/fd/200"

/* The text before a line "%%", whose length is the answer, and the rest. */
static size_t section(const char **rest, size_t *left)
{
    const char *begin = *rest, *mark = memmem(begin, *left, "\n%%\n", 4);
    size_t length = mark ? (size_t)(mark - begin) + 1 : *left, past = mark ? length + 3 : length;

    *rest += past;
    *left -= past;
    return length;
}

static int split_overrides(char *text, char **override)
{
    int count = 0;

    for (char *line = strtok(text, "\n"); line && count < OVERRIDES; line = strtok(NULL, "\n"))
        override[count++] = line;
    return count;
}

static struct bl_config *read_config(int overrides, char **override)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_config *c = NULL;

    if (bl_config_read(FILE_PATH, overrides, override, 1, &c, &err) == 0) {
        FUZZ_REQUIRE(c != NULL);
        return c;
    }
    FUZZ_REQUIRE(c == NULL);
    fuzz_check_error(&err, BL_EXIT_USAGE);
    return NULL;
}

static char *dump(const struct bl_config *c)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_text text = {0};

    FUZZ_REQUIRE(bl_config_dump(c, NULL, NULL, &text, &err) == 0);
    return text.text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *rest = (const char *)data, *text = rest;
    size_t left = size, length = section(&rest, &left);
    const char *second = rest;
    char *override[OVERRIDES], *assignments = strndup(second, section(&rest, &left));

    FUZZ_REQUIRE(assignments != NULL);
    fuzz_file_write(FILE_NUMBER, text, length);
    fuzz_file_write(PART_NUMBER, rest, left);
    struct bl_config *c = read_config(split_overrides(assignments, override), override);
    if (c) {
        char *once = dump(c), *twice;
        bl_config_free(c);
        fuzz_file_write(FILE_NUMBER, once, strlen(once));
        c = read_config(0, NULL);
        FUZZ_REQUIRE(c != NULL);
        twice = dump(c);
        FUZZ_REQUIRE(strcmp(once, twice) == 0);
        free(once);
        free(twice);
    }
    bl_config_free(c);
    free(assignments);
    return 0;
}
