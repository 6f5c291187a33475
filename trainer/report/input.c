#include "report/input.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/strings.h"
#include "report/facts.h"

#define HEADER_LIMIT ((size_t)16 << 20)

static int read_metrics(struct bl_input *in, struct bl_error *err)
{
    struct stat st;
    int rc = -1;
    char *path = bl_format("%s/metrics.jsonl", in->directory);
    if (path == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "out of memory");
    if (stat(in->directory, &st) == 0 && stat(path, &st) < 0 && errno == ENOENT) {
        bl_error_set(err, BL_EXIT_USAGE,
                     "%s: no metrics.jsonl in it; name the directory of a run whose configuration "
                     "has sinks = ( { plugin = \"jsonl\"; } )",
                     in->directory);
        goto done;
    }
    if (bl_series_read(path, &in->series, err) < 0)
        goto done;
    if (in->series.skipped > 0)
        bl_log(BL_LOG_WARNING, "%s: %zu unreadable %s left out, the first is line %zu", path,
               in->series.skipped, in->series.skipped == 1 ? "line" : "lines",
               in->series.first_skipped);
    if (in->series.rows.count == 0) {
        bl_error_set(err, BL_EXIT_USAGE, "%s: no rows yet; train first", path);
        goto done;
    }
    rc = 0;
done:
    free(path);
    return rc;
}

static void read_header(struct bl_input *in)
{
    struct bl_error err = BL_ERROR_INIT;
    json_error_t where;
    char *path = bl_format("%s/header.json", in->directory), *text = NULL;
    size_t n = 0;
    if (path == NULL)
        return;
    if (bl_read_file(path, HEADER_LIMIT, &text, &n, &err) < 0) {
        bl_log(BL_LOG_WARNING, "%s; the report goes without it", err.text);
    } else if ((in->header = json_loadb(text, n, 0, &where)) == NULL) {
        bl_log(BL_LOG_WARNING, "%s:%d: %s; the report goes without it", path, where.line,
               where.text);
    } else if (!json_is_object(in->header)) {
        bl_log(BL_LOG_WARNING, "%s: no JSON object; the report goes without it", path);
        json_decref(in->header);
        in->header = NULL;
    }
    free(text);
    free(path);
}

static int read_config(struct bl_input *in)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_node *root = NULL;
    char *path = bl_format("%s/config.cfg", in->directory);
    size_t n = 0;
    int rc = 0;
    if (path == NULL)
        return -1;
    if (bl_read_file(path, HEADER_LIMIT, &in->config_text, &n, &err) < 0 ||
        bl_node_parse(in->config_text, path, &root, &err) < 0)
        bl_log(BL_LOG_WARNING, "%s; the report goes without it", err.text);
    else
        rc = bl_facts_of_config(root, &in->config);
    bl_node_free(root);
    free(path);
    return rc;
}

static int find_spikes(const struct bl_series *s, const char *name, struct bl_spikes *out,
                       struct bl_error *err)
{
    const struct bl_curve *c = bl_series_find(s, name);
    return c == NULL ? 0 : bl_spikes_find(c, out, err);
}

int bl_input_read(const char *directory, struct bl_input *out, struct bl_error *err)
{
    struct bl_input in = {.directory = strdup(directory)};
    if (in.directory == NULL) {
        bl_error_set(err, BL_EXIT_FAILED, "out of memory");
        goto failed;
    }
    for (size_t n = strlen(in.directory); n > 1 && in.directory[n - 1] == '/'; n--)
        in.directory[n - 1] = '\0';
    if (read_metrics(&in, err) < 0)
        goto failed;
    in.path = realpath(in.directory, NULL);
    if (in.path == NULL) {
        bl_error_set(err, BL_EXIT_USAGE, "%s: %s", in.directory, strerror(errno));
        goto failed;
    }
    read_header(&in);
    if (read_config(&in) < 0 || (in.header != NULL && bl_facts_of_json(in.header, &in.facts) < 0)) {
        bl_error_set(err, BL_EXIT_FAILED, "out of memory");
        goto failed;
    }
    if (find_spikes(&in.series, "loss/ce", &in.loss_spikes, err) < 0 ||
        find_spikes(&in.series, "optim/grad_norm", &in.norm_spikes, err) < 0)
        goto failed;
    *out = in;
    return 0;
failed:
    bl_input_free(&in);
    return -1;
}

void bl_input_free(struct bl_input *in)
{
    if (in == NULL)
        return;
    bl_series_free(&in->series);
    bl_spikes_free(&in->loss_spikes);
    bl_spikes_free(&in->norm_spikes);
    json_decref(in->header);
    bl_facts_free(&in->config);
    bl_facts_free(&in->facts);
    free(in->config_text);
    free(in->directory);
    free(in->path);
    free(in->label);
    memset(in, 0, sizeof *in);
}

/* Length of the leading folders that all paths share, with the last slash. */
static size_t common_head(const struct bl_input *in, size_t count)
{
    size_t slash = 0;
    for (size_t i = 0; in[0].path[i]; i++) {
        for (size_t k = 1; k < count; k++) {
            if (in[k].path[i] != in[0].path[i])
                return slash;
        }
        if (in[0].path[i] == '/')
            slash = i + 1;
    }
    return slash;
}

/* The same from the end: "/study/run" of a/study/run and b/study/run. `head` is not touched. */
static size_t common_tail(const struct bl_input *in, size_t count, size_t head)
{
    size_t slash = 0, n = strlen(in[0].path);
    for (size_t i = 1; i <= n; i++) {
        char c = in[0].path[n - i];
        for (size_t k = 0; k < count; k++) {
            size_t length = strlen(in[k].path);
            if (length <= head + i || in[k].path[length - i] != c)
                return slash;
        }
        if (c == '/')
            slash = i;
    }
    return slash;
}

int bl_inputs_label(struct bl_input *in, size_t count, struct bl_error *err)
{
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < i; k++) {
            if (strcmp(in[i].path, in[k].path) == 0)
                return bl_error_set(err, BL_EXIT_USAGE, "%s: named twice", in[i].directory);
        }
    }
    size_t head = common_head(in, count);
    size_t tail = count > 1 ? common_tail(in, count, head) : 0;
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen(in[i].path);
        /* one run inside another shares all of its path: it keeps its whole name */
        in[i].label = length > head + tail ? strndup(in[i].path + head, length - head - tail)
                                           : strdup(in[i].path);
        if (in[i].label == NULL)
            return bl_error_set(err, BL_EXIT_FAILED, "out of memory");
    }
    return 0;
}
