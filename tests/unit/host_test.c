/* Plugin instances: options from the configuration, the host table, ops of other sizes. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "base/strings.h"
#include "plugin/host.h"

static const char *const host_keys[] = {"plugin", "name", NULL};

static const char *fixture(const char *name)
{
    static char path[1200];
    const char *top = getenv("top_builddir");
    snprintf(path, sizeof path, "%s/tests/fixtures/plugins/.libs/%s", top != NULL ? top : ".",
             name);
    return path;
}

/* Loads a fixture with options written as in a config file. */
static int load(const char *file, const char *options, struct bl_plugin_instance **out,
                struct bl_error *err)
{
    struct bl_node *root = NULL;
    if (bl_node_parse(options, "test.cfg", &root, err) != 0)
        fail_msg("%s", err->text);
    const struct bl_instance configured = {.kind = BL_KIND_REGULARIZER,
                                           .plugin = fixture(file),
                                           .name = "mine",
                                           .every = 1,
                                           .node = root,
                                           .host_keys = host_keys};
    int rc = bl_instance_load(&configured, NULL, out, err);
    bl_node_free(root); /* nothing of the tree is needed any more */
    return rc;
}

static struct bl_plugin_instance *loaded(const char *options)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_plugin_instance *i = NULL;
    if (load("regularizer_good.so", options, &i, &err) != 0)
        fail_msg("%s", err.text);
    return i;
}

static void assert_not_loaded(const char *file, const char *options, int code, const char *text)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_plugin_instance *i = NULL;
    assert_int_equal(load(file, options, &i, &err), -1);
    assert_null(i);
    if (err.code != code || strstr(err.text, text) == NULL)
        fail_msg("expected code %d and '%s': %d %s", code, text, err.code, err.text);
}

/* ---- services ---------------------------------------------------------------------------------*/

struct world {
    char metric[64];
    double metric_value;
    uint64_t bodies; /* parallel_for's calls */
    float weight[3][8];
    float gradient[8];
};

static void in_reverse(void *context, uint64_t n, void (*body)(void *, uint64_t), void *argument)
{
    ((struct world *)context)->bodies += n;
    for (uint64_t i = n; i > 0; i--)
        body(argument, i - 1);
}

static void metric(void *context, const char *name, double value)
{
    struct world *w = context;
    snprintf(w->metric, sizeof w->metric, "%s", name);
    w->metric_value = value;
}

static uint64_t tensor_count(void *context)
{
    (void)context;
    return 3;
}

static int tensor(void *context, uint64_t index, uint32_t which, struct bl_tensor *out)
{
    static const char *const names[] = {"embed.weight", "head.weight", "final_norm.weight"};
    struct world *w = context;
    if (which != BL_WEIGHT && !(which == BL_GRADIENT && index == 1))
        return -1;
    *out = (struct bl_tensor){.size = sizeof *out,
                              .dtype = BL_FP32,
                              .device = BL_DEVICE_CPU,
                              .ndim = 1,
                              .dims = {8},
                              .count = 8,
                              .data = which == BL_WEIGHT ? w->weight[index] : w->gradient,
                              .name = names[index]};
    return 0;
}

static int all_reduce(void *context, double *values, uint64_t n, struct bl_error *err)
{
    (void)context, (void)err;
    for (uint64_t i = 0; i < n; i++)
        values[i] *= 4;
    return 0;
}

static double update_squares(void *context, uint64_t index)
{
    (void)context;
    return (double)index + 0.5;
}

static int reduction(void *context, uint32_t group, struct bl_reduction *out)
{
    (void)context;
    if (group == BL_GROUP_NORM)
        return -1;
    out->error = group;
    out->bias = -0.5;
    return 0;
}

static const struct bl_run_info info = {
    .size = sizeof info, .name = "run", .directory = "", .seed = 99, .head = "head.weight"};

static struct bl_services services(struct world *w)
{
    return (struct bl_services){.context = w,
                                .parallel_for = in_reverse,
                                .metric = metric,
                                .all_reduce = all_reduce,
                                .tensor_count = tensor_count,
                                .tensor = tensor,
                                .update_squares = update_squares,
                                .reduction = reduction,
                                .device = BL_DEVICE_CPU,
                                .rank = 2,
                                .ranks = 4,
                                .info = &info};
}

/* ---- loading ----------------------------------------------------------------------------------*/

static void options_and_null_setting(void **state)
{
    struct bl_text text = {0};
    (void)state;
    struct bl_plugin_instance *i = loaded("coefficient = 2; label = \"x\"; name = \"mine\";");
    assert_false(i->null);
    assert_string_equal(i->name, "mine");
    bl_instance_dump_options(i, 4, &text);
    assert_non_null(strstr(text.text, "    coefficient = 2.0;\n"));
    assert_non_null(strstr(text.text, "    period = 3;\n"));
    bl_text_free(&text);
    bl_instance_destroy(i);
    i = loaded("coefficient = 0.0;");
    assert_true(i->null);
    bl_instance_destroy(i);
    bl_instance_destroy(NULL);
}

static void option_errors_name_the_line(void **state)
{
    (void)state;
    assert_not_loaded("regularizer_good.so", "\n\ncoeficient = 1.0;", BL_EXIT_USAGE, "test.cfg:3");
    assert_not_loaded("regularizer_good.so", "coeficient = 1.0;", BL_EXIT_USAGE, "coefficient");
    assert_not_loaded("regularizer_good.so", "coefficient = -1.0;", BL_EXIT_USAGE, "[0,inf)");
    assert_not_loaded("regularizer_absent.so", "", BL_EXIT_PLUGIN, "regularizer_absent.so");
}

static void incomplete_plugins_are_refused(void **state)
{
    (void)state;
    assert_not_loaded("regularizer_no_ops.so", "", BL_EXIT_PLUGIN, "none of rows");
    assert_not_loaded("regularizer_host_key.so", "", BL_EXIT_PLUGIN, "'name'");
    assert_not_loaded("schedule_good.so", "", BL_EXIT_PLUGIN,
                      "a schedule plugin, expected a regularizer");
}

static void short_ops_end_in_null(void **state)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_plugin_instance *i = NULL;
    (void)state;
    if (load("regularizer_short_ops.so", "", &i, &err) != 0)
        fail_msg("%s", err.text);
    assert_non_null(i->ops.regularizer.rows);
    assert_null(i->ops.regularizer.element); /* a pointer lies there in the plugin's memory */
    assert_null(i->ops.regularizer.project_weight);
    bl_instance_destroy(i);
}

/* ---- create and the table ---------------------------------------------------------------------*/

static void create_and_destroy(void **state)
{
    struct bl_error err = BL_ERROR_INIT;
    struct world w = {.bodies = 0};
    struct bl_services s = services(&w);
    (void)state;
    struct bl_plugin_instance *i = loaded("coefficient = 0.25; period = 12;");
    unsetenv("BALLAST_FIXTURE_DESTROYED");
    assert_int_equal(bl_instance_create(i, &s, &err), 0);
    assert_true(i->created);
    assert_string_equal(w.metric, "fixture/created");
    assert_true(w.metric_value == 12);
    assert_true(i->ops.regularizer.coefficient(i->self, 1) == 0.25);
    bl_instance_destroy(i);
    assert_non_null(getenv("BALLAST_FIXTURE_DESTROYED"));
    /* What was not created is not destroyed. */
    unsetenv("BALLAST_FIXTURE_DESTROYED");
    bl_instance_destroy(loaded(""));
    assert_null(getenv("BALLAST_FIXTURE_DESTROYED"));
}

static void create_fails(void **state)
{
    static const struct {
        const char *options;
        int code;
        const char *text;
    } cases[] = {{"probe = \"fail\";", BL_EXIT_USAGE, "regularizer mine: probe 7 of run"},
                 {"probe = \"silent\";", BL_EXIT_USAGE, "gave no reason"},
                 {"probe = \"data\";", BL_EXIT_DATA, "probe of data"}};
    struct world w = {.bodies = 0};
    struct bl_services s = services(&w);
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct bl_error err = BL_ERROR_INIT;
        struct bl_plugin_instance *i = loaded(cases[c].options);
        unsetenv("BALLAST_FIXTURE_DESTROYED");
        assert_int_equal(bl_instance_create(i, &s, &err), -1);
        assert_int_equal(err.code, cases[c].code);
        if (strstr(err.text, cases[c].text) == NULL)
            fail_msg("expected '%s' in: %s", cases[c].text, err.text);
        bl_instance_destroy(i);
        assert_null(getenv("BALLAST_FIXTURE_DESTROYED"));
    }
}

static void every_service_may_be_absent(void **state)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_tensor t = {.size = sizeof t};
    struct bl_reduction reduction = {.size = sizeof reduction, .error = 7};
    double v[2] = {1, 2};
    (void)state;
    struct bl_plugin_instance *i = loaded("");
    assert_int_equal(bl_instance_create(i, NULL, &err), 0);
    const struct bl_host *h = &i->host;
    assert_int_equal(h->size, sizeof(struct bl_host));
    assert_int_equal(h->device, BL_DEVICE_CPU);
    assert_int_equal(h->ranks, 1);
    assert_string_equal(h->info->name, "");
    assert_string_equal(h->info->directory, "");
    h->metric(h, "x", 1);
    h->log(h, BL_LOG_DEBUG, "%d", 1);
    assert_int_equal(h->all_reduce(h, v, 2, &err), 0);
    assert_true(v[0] == 1 && v[1] == 2);
    assert_int_equal(h->tensor_count(h), 0);
    assert_int_equal(h->tensor(h, 0, BL_WEIGHT, &t), -1);
    assert_int_equal(h->find(h, "embed.weight", BL_WEIGHT, &t), -1);
    assert_true(isnan(h->update_squares(h, 0)));
    assert_int_equal(h->reduction(h, BL_GROUP_COUNT, &reduction), -1);
    assert_true(reduction.error == 7);
    h->release(h, NULL);
    bl_instance_destroy(i);

    struct bl_services two = {.ranks = 2};
    i = loaded("");
    assert_int_equal(bl_instance_create(i, &two, &err), 0);
    assert_int_equal(i->host.all_reduce(&i->host, v, 2, &err), -1); /* no silent wrong sum */
    bl_instance_destroy(i);
}

static void table_reaches_the_services(void **state)
{
    struct bl_error err = BL_ERROR_INIT;
    struct world w = {.bodies = 0};
    struct bl_services s = services(&w);
    struct bl_tensor t = {.size = sizeof t};
    double v[1] = {3};
    (void)state;
    struct bl_plugin_instance *i = loaded("");
    assert_int_equal(bl_instance_create(i, &s, &err), 0);
    const struct bl_host *h = &i->host;
    assert_int_equal(h->rank, 2);
    assert_int_equal(h->ranks, 4);
    assert_int_equal(h->all_reduce(h, v, 1, &err), 0);
    assert_true(v[0] == 12);
    assert_true(h->update_squares(h, 2) == 2.5);
    struct bl_reduction older = {.size = offsetof(struct bl_reduction, lost_share),
                                 .lost_share = 7};
    assert_int_equal(h->reduction(h, BL_GROUP_COUNT, &older), 0);
    assert_true(older.error == BL_GROUP_COUNT && older.bias == -0.5);
    assert_true(older.lost_share == 7 && older.size == offsetof(struct bl_reduction, lost_share));
    struct bl_reduction whole = {.size = sizeof whole};
    assert_int_equal(h->reduction(h, BL_GROUP_HEAD, &whole), 0);
    assert_true(whole.error == BL_GROUP_HEAD && isnan(whole.lost_share));
    assert_int_equal(h->reduction(h, BL_GROUP_COUNT + 1, &whole), -1);
    assert_int_equal(h->reduction(h, BL_GROUP_NORM, &whole), -1);
    assert_int_equal(h->reduction(h, BL_GROUP_HEAD, NULL), -1);
    assert_true(h->random(h, 5, 6) == bl_random(99, 5, 6));

    assert_int_equal(h->tensor_count(h), 3);
    assert_int_equal(h->tensor(h, 2, BL_WEIGHT, &t), 0);
    assert_string_equal(t.name, "final_norm.weight");
    assert_int_equal(h->tensor(h, 3, BL_WEIGHT, &t), -1);
    assert_int_equal(h->find(h, "head.weight", BL_GRADIENT, &t), 0);
    assert_ptr_equal(t.data, w.gradient);
    assert_int_equal(h->find(h, "embed.weight", BL_GRADIENT, &t), -1);
    assert_int_equal(h->find(h, "nothing", BL_WEIGHT, &t), -1);

    /* A view of an older plugin is shorter; not a byte behind it is written. */
    struct bl_tensor old;
    memset(&old, 0xee, sizeof old);
    old.size = offsetof(struct bl_tensor, dims);
    assert_int_equal(h->tensor(h, 1, BL_WEIGHT, &old), 0);
    assert_int_equal(old.size, offsetof(struct bl_tensor, dims));
    assert_int_equal(old.ndim, 1);
    assert_true(old.dims[0] == 0xeeeeeeeeeeeeeeeeu);
    t.size = 0;
    assert_int_equal(h->tensor(h, 1, BL_WEIGHT, &t), -1);

    unsigned char *p = h->allocate(h, 1000);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % 64, 0);
    for (int k = 0; k < 1000; k++)
        assert_int_equal(p[k], 0);
    h->release(h, p);
    p = h->allocate(h, 0);
    assert_non_null(p);
    h->release(h, p);
    assert_null(h->allocate(h, UINT64_MAX));
    bl_instance_destroy(i);
}

/* ---- sums -------------------------------------------------------------------------------------*/

static void sums_are_exact_and_independent_of_order(void **state)
{
    static const uint64_t sizes[] = {0, 1, 7, 8, 9, 4095, 4096, 4097, 8191, 12288, 12293, 100003};
    struct bl_error err = BL_ERROR_INIT;
    struct world w = {.bodies = 0};
    struct bl_services with = services(&w), without = {.info = &info};
    (void)state;
    struct bl_plugin_instance *i = loaded(""), *k = loaded("");
    assert_int_equal(bl_instance_create(i, &with, &err), 0);
    assert_int_equal(bl_instance_create(k, &without, &err), 0);
    for (size_t c = 0; c < sizeof sizes / sizeof *sizes; c++) {
        uint64_t n = sizes[c];
        float *a = calloc(n + 1, sizeof *a), *b = calloc(n + 1, sizeof *b);
        double *d = calloc(n + 1, sizeof *d);
        long double exact = 0, exact_dot = 0, magnitude = 0;
        assert_true(a != NULL && b != NULL && d != NULL);
        for (uint64_t e = 0; e < n; e++) {
            a[e] = (float)bl_random_normal(1, n, e);
            b[e] = (float)bl_random_normal(2, n, e);
            d[e] = a[e];
            exact += (long double)a[e] * a[e];
            exact_dot += (long double)a[e] * b[e];
            magnitude += fabsl((long double)a[e] * b[e]);
        }
        a[n] = b[n] = NAN; /* behind the end */
        struct bl_tensor ta = {
            .size = sizeof ta, .dtype = BL_FP32, .device = BL_DEVICE_CPU, .count = n, .data = a};
        struct bl_tensor tb = ta, td = ta;
        tb.data = b;
        td.data = d;
        td.dtype = BL_FP64;
        double s = i->host.sum_squares(&i->host, &ta), p = i->host.dot(&i->host, &ta, &tb);
        /* An addend passes through at most 512 adds in a lane, 8 lanes and n/4096 blocks; products
         * of floats are exact in a double. */
        double adds = 512 + 8 + (double)n / 4096 + 1;
        assert_true(fabsl(s - exact) <= adds * 0x1p-53L * exact);
        assert_true(fabsl(p - exact_dot) <= adds * 0x1p-53L * magnitude);
        /* The same bits in another order of blocks, and from fp64 storage of the same numbers. */
        assert_true(s == k->host.sum_squares(&k->host, &ta));
        assert_true(p == k->host.dot(&k->host, &ta, &tb));
        assert_true(s == i->host.sum_squares(&i->host, &td));
        assert_true(p == i->host.dot(&i->host, &td, &tb));
        free(a);
        free(b);
        free(d);
    }
    assert_true(w.bodies > 0);
    float one[2] = {3, 4};
    struct bl_tensor x = {
        .size = sizeof x, .dtype = BL_BF16, .device = BL_DEVICE_CPU, .count = 2, .data = one};
    assert_true(i->host.sum_squares(&i->host, &x) == 25);
    struct bl_tensor y = x;
    y.count = 1;
    assert_true(isnan(i->host.dot(&i->host, &x, &y))); /* lengths differ */
    y.count = 2;
    y.device = BL_DEVICE_CUDA;
    assert_true(isnan(i->host.sum_squares(&i->host, &y)));
    bl_instance_destroy(i);
    bl_instance_destroy(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_and_null_setting),
        cmocka_unit_test(option_errors_name_the_line),
        cmocka_unit_test(incomplete_plugins_are_refused),
        cmocka_unit_test(short_ops_end_in_null),
        cmocka_unit_test(create_and_destroy),
        cmocka_unit_test(create_fails),
        cmocka_unit_test(every_service_may_be_absent),
        cmocka_unit_test(table_reaches_the_services),
        cmocka_unit_test(sums_are_exact_and_independent_of_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
