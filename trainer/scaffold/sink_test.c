/* One row whose line you know. `ballast plugin test` has checked NaN, many metrics and a full disk;
 * that the line is the one you MEANT only you can tell. */
#include "my_plugin.c"

#define FILL_IN NULL

int main(void)
{
    const char *const names[2] = {"optim/lr", "loss/total"};
    const double values[2] = {1e-3, 2.5};
    const struct bl_record record = {.size = sizeof record,
                                     .attempt = 1,
                                     .step = 7,
                                     .count = 2,
                                     .names = names,
                                     .values = values};
    struct bl_error err = {.size = sizeof err};
    struct sink sink = {.file = tmpfile()};
    char line[200] = "";
    if (sink.file == NULL || write_row(&sink, &record, &err) != 0)
        return 1;
    rewind(sink.file);
    if (fgets(line, sizeof line, sink.file) == NULL)
        line[0] = '\0';
    fclose(sink.file);

    const char *expected = FILL_IN; /* the line for step 7 with a loss of 2.5: "...\n" */
    if (expected == NULL) {
        printf("my_plugin_test.c: fill in the expected value, the line for step 7, loss 2.5\n");
        return 1;
    }
    if (strcmp(line, expected) != 0) {
        printf("my_plugin_test: line \"%s\", expected \"%s\"\n", line, expected);
        return 1;
    }
    printf("my_plugin_test: ok\n");
    return 0;
}
