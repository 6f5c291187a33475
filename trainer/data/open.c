#include "data/data.h"

#include <math.h>

#include "data/paths.h"

int bl_data_open(struct bl_plugin_instance *source, const struct bl_data_options *data,
                 int validation, struct bl_source_info *info, struct bl_error *err)
{
    const char *split = validation ? "data.validation" : "data.train";
    const struct bl_strings *patterns = validation ? &data->validation : &data->train;
    struct bl_source_files files = {.size = sizeof(files), .validation = validation ? 1 : 0};
    struct bl_source_info told = {.size = sizeof(told), .entropy = NAN};
    struct bl_paths paths = {NULL, 0, 0};
    struct bl_error cause = BL_ERROR_INIT;
    int answer = -1;

    for (uint64_t i = 0; i < patterns->count; i++)
        if (bl_paths_add(&paths, split, patterns->values[i], err) != 0)
            goto done;
    bl_paths_sort(&paths);
    files.count = paths.count;
    files.paths = (const char *const *)paths.items;
    files.format = data->format ? data->format : "auto";
    if (source->ops.source.open(source->self, &files, &cause) != 0) {
        bl_error_set(err, cause.code > BL_EXIT_FAILED ? cause.code : BL_EXIT_DATA, "%s",
                     cause.text[0] ? cause.text : "the source failed without saying why");
        goto done;
    }
    source->ops.source.describe(source->self, &told);
    if (told.sequences < 1) {
        bl_error_set(err, BL_EXIT_DATA, "%s: source %s has no sequence", split,
                     source->plugin->name);
        goto done;
    }
    *info = told;
    answer = 0;
done:
    bl_paths_free(&paths);
    return answer;
}
