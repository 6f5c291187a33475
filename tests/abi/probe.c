/* probe [--file] FILE: loads a plugin (--file: looks at the file alone) and says what it is, or
 * why it is refused; the exit code is the program's. For compilers_test.sh. */
#include <stdio.h>
#include <string.h>

#include "plugin/loader.h"

int main(int argc, char **argv)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_library *l = NULL;
    int file_only = argc == 3 && strcmp(argv[1], "--file") == 0;
    if (argc != 2 + file_only) {
        fprintf(stderr, "usage: probe [--file] FILE\n");
        return BL_EXIT_USAGE;
    }
    const char *path = argv[argc - 1];
    if (file_only ? bl_plugin_precheck(path, 0, &err) : bl_library_open(path, 0, &l, &err)) {
        printf("%s\n", err.text);
        return err.code;
    }
    if (l != NULL)
        printf("%s %s, %s\n", bl_kind_name(bl_library_plugin(l)->kind), bl_library_plugin(l)->name,
               bl_library_plugin(l)->build);
    bl_library_close(l);
    return 0;
}
