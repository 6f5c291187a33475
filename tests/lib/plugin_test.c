#include "tests/lib/plugin_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/random.h"
#include "base/strings.h"
#include "plugin/conformance.h"

#define FRESH_ERROR ((struct bl_error)BL_ERROR_INIT)

/* ---- services -------------------------------------------------------------------------------- */

static void service_parallel_for(void *context, uint64_t n, void (*body)(void *, uint64_t),
                                 void *argument)
{
    const struct bl_bench *b = context;
    for (uint64_t i = 0; i < n; i++)
        body(argument, b->reversed ? n - 1 - i : i);
}

static void service_metric(void *context, const char *name, double value)
{
    struct bl_bench *b = context;
    size_t i = 0;
    while (i < b->metric_count && strcmp(b->metrics[i].name, name) != 0)
        i++;
    assert_true(i < BL_BENCH_METRICS);
    assert_true(strlen(name) < sizeof b->metrics[i].name);
    snprintf(b->metrics[i].name, sizeof b->metrics[i].name, "%s", name);
    b->metrics[i].value = value;
    if (i == b->metric_count)
        b->metric_count++;
}

/* Every rank holds what this one holds. */
static int service_all_reduce(void *context, double *values, uint64_t n, struct bl_error *err)
{
    struct bl_bench *b = context;
    (void)err;
    for (uint64_t i = 0; i < n; i++)
        values[i] *= b->services.ranks;
    b->reduces++;
    return 0;
}

static uint64_t service_tensor_count(void *context)
{
    return ((const struct bl_bench *)context)->tensor_count;
}

static int service_tensor(void *context, uint64_t index, uint32_t which, struct bl_tensor *out)
{
    struct bl_bench *b = context;
    if (index >= b->tensor_count || which >= BL_BENCH_ARRAYS)
        return -1;
    const struct bl_bench_tensor *t = &b->tensors[index];
    if (t->arrays[which] == NULL)
        return -1;
    *out = bl_bench_view(t->name, t->group, t->rows, t->cols, t->arrays[which]);
    return 0;
}

static double service_update_squares(void *context, uint64_t index)
{
    const struct bl_bench *b = context;
    return index < b->tensor_count ? b->tensors[index].update_squares : NAN;
}

static int service_reduction(void *context, uint32_t group, struct bl_reduction *out)
{
    const struct bl_bench *b = context;
    const struct bl_reduction *r = &b->reductions[group];
    if (r->size == 0)
        return -1;
    *out = *r;
    return 0;
}

/* ---- bench ----------------------------------------------------------------------------------- */

void bl_bench_start(struct bl_bench *b)
{
    memset(b, 0, sizeof *b);
    b->info = (struct bl_run_info){.size = sizeof b->info,
                                   .name = "bench",
                                   .directory = "",
                                   .seed = 42,
                                   .steps = 100,
                                   .sequences = 8,
                                   .context = 16,
                                   .vocab = 32,
                                   .width = 8,
                                   .layers = 2,
                                   .parameters = 1000,
                                   .head = "head.weight"};
    b->services = (struct bl_services){.context = b,
                                       .parallel_for = service_parallel_for,
                                       .metric = service_metric,
                                       .all_reduce = service_all_reduce,
                                       .tensor_count = service_tensor_count,
                                       .tensor = service_tensor,
                                       .update_squares = service_update_squares,
                                       .reduction = service_reduction,
                                       .device = BL_DEVICE_CPU,
                                       .rank = 0,
                                       .ranks = 1,
                                       .info = &b->info};
    b->err = FRESH_ERROR;
    const char *folder = getenv("TMPDIR");
    char *path = bl_format("%s/ballast-bench-XXXXXX", folder != NULL ? folder : "/tmp");
    assert_non_null(path);
    b->log_fd = mkstemp(path);
    assert_true(b->log_fd >= 0);
    assert_int_equal(bl_log_file(path), 0);
    unlink(path);
    free(path);
}

void bl_bench_stop(struct bl_bench *b)
{
    bl_bench_close(b);
    bl_log_file(NULL);
    close(b->log_fd);
    free(b->log_text);
    memset(b, 0, sizeof *b);
}

struct bl_bench_tensor *bl_bench_tensor(struct bl_bench *b, const char *name, uint32_t group,
                                        uint64_t rows, uint64_t cols, uint32_t which, float *data)
{
    assert_true(which < BL_BENCH_ARRAYS);
    size_t i = 0;
    while (i < b->tensor_count && strcmp(b->tensors[i].name, name) != 0)
        i++;
    assert_true(i < BL_BENCH_TENSORS);
    struct bl_bench_tensor *t = &b->tensors[i];
    if (i == b->tensor_count) {
        assert_true(strlen(name) < sizeof t->name);
        *t = (struct bl_bench_tensor){
            .group = group, .rows = rows, .cols = cols, .update_squares = NAN};
        snprintf(t->name, sizeof t->name, "%s", name);
        b->tensor_count++;
    }
    t->arrays[which] = data;
    return t;
}

static int make_instance(const struct bl_bench *b, struct bl_plugin_instance **out,
                         struct bl_error *err)
{
    struct bl_plugin_instance *i = NULL;
    struct bl_strings none = {0, NULL};
    if (bl_instance_load(&b->configured, &none, &i, err) != 0)
        return -1;
    if (bl_instance_create(i, &b->services, err) != 0) {
        bl_instance_destroy(i);
        return -1;
    }
    *out = i;
    return 0;
}

static void adopt(struct bl_bench *b, struct bl_plugin_instance *i)
{
    b->instance = i;
    b->ops = i != NULL ? &i->ops : NULL;
    b->self = i != NULL ? i->self : NULL;
    b->host = i != NULL ? &i->host : NULL;
}

int bl_bench_try(struct bl_bench *b, uint32_t kind, const char *name, const char *config)
{
    static const char *const no_keys[] = {NULL};
    struct bl_plugin_instance *i = NULL;
    bl_bench_close(b);
    b->err = FRESH_ERROR;
    b->kind = kind;
    b->name = strdup(name);
    b->config = strdup(config != NULL ? config : "");
    assert_non_null(b->name);
    assert_non_null(b->config);
    b->configured =
        (struct bl_instance){.kind = kind, .plugin = b->name, .name = b->name, .every = 1};
    b->configured.host_keys = no_keys;
    if (b->config[0] != '\0') {
        if (bl_node_parse(b->config, "bench", &b->root, &b->err) != 0)
            goto fail;
        b->configured.node = b->root;
    }
    if (make_instance(b, &i, &b->err) != 0)
        goto fail;
    adopt(b, i);
    return 0;
fail:
    bl_bench_close(b);
    return -1;
}

void bl_bench_open(struct bl_bench *b, uint32_t kind, const char *name, const char *config)
{
    if (bl_bench_try(b, kind, name, config) != 0)
        fail_msg("%s {%s}: %s", name, config != NULL ? config : "", b->err.text);
}

void bl_bench_refuses(struct bl_bench *b, uint32_t kind, const char *name, const char *config,
                      int code, const char *word)
{
    if (bl_bench_try(b, kind, name, config) == 0)
        fail_msg("%s {%s} was accepted", name, config);
    if (b->err.code != code || strchr(b->err.text, '\n') != NULL ||
        strstr(b->err.text, word) == NULL)
        fail_msg("%s {%s}: expected code %d and \"%s\" in one line, got code %d: %s", name, config,
                 code, word, b->err.code, b->err.text);
}

void bl_bench_close(struct bl_bench *b)
{
    bl_instance_destroy(b->instance);
    adopt(b, NULL);
    bl_node_free(b->root);
    b->root = NULL;
    free(b->name);
    free(b->config);
    b->name = b->config = NULL;
}

static const struct bl_bench_metric *find_metric(const struct bl_bench *b, const char *name)
{
    for (size_t i = 0; i < b->metric_count; i++)
        if (strcmp(b->metrics[i].name, name) == 0)
            return &b->metrics[i];
    return NULL;
}

double bl_bench_metric(const struct bl_bench *b, const char *name)
{
    const struct bl_bench_metric *m = find_metric(b, name);
    return m != NULL ? m->value : NAN;
}

int bl_bench_has(const struct bl_bench *b, const char *name)
{
    return find_metric(b, name) != NULL;
}

void bl_bench_forget(struct bl_bench *b)
{
    b->metric_count = 0;
}

const char *bl_bench_log(struct bl_bench *b)
{
    struct stat st;
    assert_int_equal(fstat(b->log_fd, &st), 0);
    free(b->log_text);
    b->log_text = calloc((size_t)st.st_size + 1, 1);
    assert_non_null(b->log_text);
    assert_int_equal(pread(b->log_fd, b->log_text, (size_t)st.st_size, 0), st.st_size);
    return b->log_text;
}

unsigned bl_bench_logged(struct bl_bench *b, const char *word)
{
    unsigned n = 0;
    for (const char *at = strstr(bl_bench_log(b), word); at != NULL; at = strstr(at + 1, word))
        n++;
    return n;
}

/* ---- state ----------------------------------------------------------------------------------- */

static unsigned char *saved_state(const struct bl_plugin_instance *i, uint64_t *bytes)
{
    *bytes = i->ops.common.save(i->self, NULL, 0);
    unsigned char *buffer = malloc(*bytes + 1);
    assert_non_null(buffer);
    memset(buffer, 0xa5, *bytes + 1);
    assert_int_equal(i->ops.common.save(i->self, buffer, *bytes), *bytes);
    assert_int_equal(buffer[*bytes], 0xa5);
    return buffer;
}

static void load_state(const struct bl_plugin_instance *i, const void *buffer, uint64_t bytes)
{
    struct bl_error err = BL_ERROR_INIT;
    if (i->ops.common.load(i->self, buffer, bytes, &err) != 0)
        fail_msg("%s: load refused its own state: %s", i->name, err.text);
}

void bl_bench_reload(struct bl_bench *b)
{
    struct bl_plugin_instance *fresh = NULL;
    uint64_t bytes = 0, again = 0;
    unsigned char *state = NULL, *copy = NULL;
    assert_non_null(b->instance);
    if (b->ops->common.save != NULL)
        state = saved_state(b->instance, &bytes);
    bl_instance_destroy(b->instance);
    adopt(b, NULL);
    if (make_instance(b, &fresh, &b->err) != 0)
        fail_msg("%s", b->err.text);
    adopt(b, fresh);
    if (state != NULL) {
        load_state(fresh, state, bytes);
        copy = saved_state(fresh, &again);
        assert_int_equal(again, bytes);
        assert_memory_equal(copy, state, bytes);
    }
    free(state);
    free(copy);
}

/* ---- what holds for every plugin --------------------------------------------------------------
 */

/* The program's own checks, the ones of `ballast plugin test`. */
static void check_conformance(const char *path, const char *required)
{
    enum { MOST = 8 };
    struct bl_error err = FRESH_ERROR;
    struct bl_conformance c = {.path = path, .seconds = 60};
    char *assignments[MOST];
    FILE *out = tmpfile();
    assert_non_null(out);
    for (const char *at = required + strspn(required, " "); *at != '\0';) {
        size_t key = strcspn(at, " ="), value = key + strspn(at + key, " ="), end;
        end = value + strcspn(at + value, ";");
        assert_true(c.assignments < MOST);
        assignments[c.assignments] =
            bl_format("%.*s=%.*s", (int)key, at, (int)(end - value), at + value);
        assert_non_null(assignments[c.assignments++]);
        at += end + strspn(at + end, "; ");
    }
    c.assignment = assignments;
    if (bl_conformance_run(&c, out, &err) != 0) {
        char line[1024];
        rewind(out);
        while (fgets(line, sizeof line, out) != NULL)
            print_error("%s", line);
        fail_msg("%s", err.text);
    }
    for (int i = 0; i < c.assignments; i++)
        free(assignments[i]);
    fclose(out);
}

static void check_other_kinds(uint32_t kind, const char *path)
{
    for (uint32_t other = 1; other < BL_KIND_COUNT; other++) {
        struct bl_error err = FRESH_ERROR;
        struct bl_library *library = NULL;
        if (other == kind)
            continue;
        if (bl_library_open(path, other, &library, &err) == 0)
            fail_msg("%s was accepted as a %s", path, bl_kind_name(other));
        assert_null(library);
        assert_int_equal(err.code, BL_EXIT_PLUGIN);
        assert_true(err.text[0] != '\0');
    }
}

static void check_unknown_key(struct bl_bench *b, uint32_t kind, const char *name,
                              const char *required, const struct bl_option *table)
{
    bl_bench_refuses(b, kind, name, "qqqqqqqqqq = 1;", BL_EXIT_USAGE, "bench:1");
    for (const struct bl_option *o = table; o != NULL && o->key != NULL; o++) {
        size_t n = strlen(o->key);
        if (n < 4)
            continue;
        char *config = bl_format("%.*s = 1; %s", (int)(n - 1), o->key, required);
        bl_bench_refuses(b, kind, name, config, BL_EXIT_USAGE, "bench:1");
        int named = 0;
        for (const struct bl_option *k = table; k->key != NULL; k++)
            named |= strlen(k->key) >= n && strstr(b->err.text, k->key) != NULL;
        if (!named)
            fail_msg("no valid key is named for {%s}: %s", config, b->err.text);
        free(config);
        break;
    }
}

void bl_bench_common(uint32_t kind, const char *name, const char *required)
{
    struct bl_bench b;
    const struct bl_strings none = {0, NULL};
    struct bl_error err = FRESH_ERROR;
    char *path = NULL;
    if (bl_plugin_find(kind, name, &none, &path, &err) != 0)
        fail_msg("%s", err.text);
    check_conformance(path, required);
    check_other_kinds(kind, path);
    free(path);
    bl_bench_start(&b);
    bl_bench_open(&b, kind, name, required);
    /* The library may go with its last instance: keep this one while its table is read. */
    struct bl_plugin_instance *keep = NULL;
    if (make_instance(&b, &keep, &b.err) != 0)
        fail_msg("%s", b.err.text);
    check_unknown_key(&b, kind, name, required, keep->plugin->options);
    bl_instance_destroy(keep);
    bl_bench_stop(&b);
}

/* ---- small things -----------------------------------------------------------------------------
 */

struct bl_tensor bl_bench_view(const char *name, uint32_t group, uint64_t rows, uint64_t cols,
                               float *data)
{
    return (struct bl_tensor){.size = sizeof(struct bl_tensor),
                              .dtype = BL_FP32,
                              .device = BL_DEVICE_CPU,
                              .group = group,
                              .ndim = cols > 0 ? 2 : 1,
                              .dims = {rows, cols > 0 ? cols : 1, 1, 1},
                              .count = rows * (cols > 0 ? cols : 1),
                              .key = bl_hash(name),
                              .data = data,
                              .name = name};
}

double bl_bench_normal(uint64_t stream, uint64_t i)
{
    return bl_random_normal(42, stream, i);
}
