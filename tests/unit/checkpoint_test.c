/* Checkpoints: what is written comes back, what is damaged or another model's is refused by name.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "cmd.h"
#include "tests/lib/checkpoint.h"

static char folder[] = "/tmp/ballast-check-XXXXXX";

static const char *in_folder(const char *name)
{
    static char paths[64][160];
    static int next;
    char *path = paths[next++ % 64];

    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

static struct bl_tensor tensor(const char *name, uint64_t rows, uint64_t columns, float *data)
{
    struct bl_tensor t = {.size = sizeof(t),
                          .dtype = BL_FP32,
                          .device = BL_DEVICE_CPU,
                          .ndim = columns ? 2 : 1,
                          .dims = {rows, columns},
                          .count = rows * (columns ? columns : 1),
                          .data = data,
                          .name = name};
    return t;
}

/* A model of two parameters with master and one moment each, and two plugins with state. */
struct model {
    float a[6], b[4], state[4][6];
    struct bl_tensor weights[2], states[4];
    struct bl_checkpoint_plugin plugins[2];
    struct bl_checkpoint_loaded loaded[2];
    struct bl_checkpoint c;
};

static void make_model(struct model *m, uint64_t step, float base)
{
    static const char *const names[4] = {"a.weight.master", "a.weight.moment1", "b.master",
                                         "b.moment1"};
    static const unsigned char bytes[5] = {0, 255, 16, 1, 127};

    memset(m, 0, sizeof(*m));
    for (int i = 0; i < 6; i++)
        m->a[i] = base + (float)i;
    for (int i = 0; i < 4; i++)
        m->b[i] = base - (float)i;
    for (int s = 0; s < 4; s++)
        for (int i = 0; i < 6; i++)
            m->state[s][i] = base * (float)(s + 1) + (float)i;
    m->weights[0] = tensor("a.weight", 2, 3, m->a);
    m->weights[1] = tensor("b", 4, 0, m->b);
    m->states[0] = tensor(names[0], 2, 3, m->state[0]);
    m->states[1] = tensor(names[1], 2, 3, m->state[1]);
    m->states[2] = tensor(names[2], 4, 0, m->state[2]);
    m->states[3] = tensor(names[3], 4, 0, m->state[3]);
    m->plugins[0] = (struct bl_checkpoint_plugin){"guard.spike", bytes, 5};
    m->plugins[1] = (struct bl_checkpoint_plugin){"monitor.gauge", bytes, 0};
    m->c.info = (struct bl_checkpoint_info){.step = step,
                                            .updates = step / 2 + 1,
                                            .sample = 32 * step,
                                            .seed = UINT64_MAX - 5, /* beyond a JSON integer */
                                            .attempt = 3,
                                            .ranks = 4,
                                            .micro = 8,
                                            .plan = UINT64_MAX - 1};
    m->loaded[0] = (struct bl_checkpoint_loaded){"guard.spike", 5};
    m->loaded[1] = (struct bl_checkpoint_loaded){"sink.jsonl", UINT64_MAX};
    m->c.loaded = m->loaded;
    m->c.loaded_count = 2;
    m->c.weights = m->weights;
    m->c.weight_count = 2;
    m->c.states = m->states;
    m->c.state_count = 4;
    m->c.plugins = m->plugins;
    m->c.plugin_count = 2;
}

static void write_step(const char *directory, uint64_t step, float base, uint64_t keep)
{
    struct bl_error err = BL_ERROR_INIT;
    struct model m;

    make_model(&m, step, base);
    if (write_checkpoint(directory, &m.c, keep, &err) != 0)
        fail_msg("%s", err.text);
}

/* Into the tensors of a model: the first so many of each. */
static int read_into(const struct bl_checkpoint_reader *r, struct model *m, size_t weights,
                     size_t states, struct bl_error *err)
{
    const struct bl_checkpoint_tensors to = {m->weights, weights, states ? m->states : NULL, states,
                                             NULL};

    return bl_checkpoint_read(r, &to, err);
}

static struct bl_checkpoint_reader *open_good(const char *path)
{
    struct bl_checkpoint_reader *r = NULL;
    struct bl_error err = BL_ERROR_INIT;

    if (bl_checkpoint_open(path, &r, &err) != 0)
        fail_msg("%s", err.text);
    return r;
}

/* The newest folder named by a step, 0: none; how many there are in *count. */
static uint64_t newest(const char *directory, size_t *count)
{
    struct bl_error err = BL_ERROR_INIT;
    uint64_t *steps, last;

    assert_int_equal(bl_checkpoint_steps(directory, &steps, count, &err), 0);
    last = *count > 0 ? steps[*count - 1] : 0;
    free(steps);
    return last;
}

static void test_round_trip(void **state)
{
    const char *directory = in_folder("round/checkpoints");
    struct bl_checkpoint_reader *r;
    const struct bl_checkpoint_info *info;
    struct bl_error err = BL_ERROR_INIT;
    struct model wanted, m;
    uint64_t bytes;
    size_t count;

    (void)state;
    assert_int_equal(newest(directory, &count), 0); /* no such folder */
    write_step(directory, 500, 1.25f, 3);
    assert_int_equal(newest(directory, &count), 500);
    assert_int_equal(count, 1);
    make_model(&wanted, 500, 1.25f);
    make_model(&m, 0, 0.0f);
    r = open_good(in_folder("round/checkpoints/500"));
    info = bl_checkpoint_info(r);
    assert_memory_equal(info, &wanted.c.info, sizeof(*info));
    if (read_into(r, &m, 2, 4, &err) != 0)
        fail_msg("%s", err.text);
    assert_memory_equal(m.a, wanted.a, sizeof(m.a));
    assert_memory_equal(m.b, wanted.b, sizeof(m.b));
    assert_memory_equal(m.state[1], wanted.state[1], sizeof(m.state[1]));
    assert_memory_equal(m.state[3], wanted.state[3], 4 * sizeof(float));
    assert_int_equal(bl_checkpoint_plugin_count(r), 2);
    assert_string_equal(bl_checkpoint_plugin_key(r, 0), "guard.spike");
    assert_null(bl_checkpoint_plugin_key(r, 2));
    assert_memory_equal(bl_checkpoint_plugin(r, "guard.spike", &bytes), wanted.plugins[0].bytes, 5);
    assert_int_equal(bytes, 5);
    assert_non_null(bl_checkpoint_plugin(r, "monitor.gauge", &bytes)); /* saved, with no bytes */
    assert_int_equal(bytes, 0);
    assert_null(bl_checkpoint_plugin(r, "guard.other", &bytes));
    assert_int_equal(bl_checkpoint_loaded_count(r), 2);
    assert_string_equal(bl_checkpoint_loaded(r, 1)->key, "sink.jsonl");
    assert_true(bl_checkpoint_loaded(r, 1)->checksum == UINT64_MAX);
    assert_null(bl_checkpoint_loaded(r, 2));
    bl_checkpoint_close(r);
    bl_checkpoint_close(NULL);
}

/* Reads step 500 of "round" into a changed model: refused with `word`, and nothing was copied. */
static void refuses(struct model *m, size_t weights, size_t states, const char *word)
{
    struct bl_checkpoint_reader *r = open_good(in_folder("round/checkpoints/500"));
    struct bl_error err = BL_ERROR_INIT;

    assert_int_equal(read_into(r, m, weights, states, &err), -1);
    assert_int_equal(err.code, BL_EXIT_CHECKPOINT);
    if (!strstr(err.text, word))
        fail_msg("\"%s\" does not have \"%s\"", err.text, word);
    for (int i = 0; i < 6; i++)
        assert_true(m->a[i] == (float)i && m->state[0][i] == (float)i);
    bl_checkpoint_close(r);
}

static void test_other_model(void **state)
{
    struct bl_checkpoint_reader *r;
    struct bl_error err = BL_ERROR_INIT;
    struct model m;

    (void)state;
    make_model(&m, 0, 0.0f);
    m.weights[1].dims[0] = m.weights[1].count = 3;
    refuses(&m, 2, 4, "tensor b is (4), this model needs (3)");
    make_model(&m, 0, 0.0f);
    m.weights[0].dims[0] = 3;
    m.weights[0].dims[1] = 2;
    refuses(&m, 2, 4, "tensor a.weight is (2, 3), this model needs (3, 2)");
    make_model(&m, 0, 0.0f);
    m.weights[1].name = "c";
    refuses(&m, 2, 4, "no tensor c");
    make_model(&m, 0, 0.0f);
    refuses(&m, 1, 4, "tensor b, which this model does not have");
    make_model(&m, 0, 0.0f);
    refuses(&m, 2, 3, "tensor b.moment1, which this model does not have");
    make_model(&m, 0, 0.0f);
    m.states[3].name = "b.kahan";
    refuses(&m, 2, 4, "no tensor b.kahan");
    make_model(&m, 0, 0.0f);
    m.states[0].dtype = BL_BF16;
    refuses(&m, 2, 4, "a.weight.master is stored as F32, this run keeps it as BF16");
    /* Weights alone, as another optimizer would want them. */
    make_model(&m, 0, 0.0f);
    r = open_good(in_folder("round/checkpoints/500"));
    assert_int_equal(read_into(r, &m, 2, 0, &err), 0);
    assert_true(m.a[0] == 1.25f);
    bl_checkpoint_close(r);
}

/* Flips one bit of a file of a checkpoint, or cuts it, and expects a refusal that names it. */
static void test_damage(void **state)
{
    static const char *const files[] = {"model.safetensors", "optimizer-1-of-1.safetensors",
                                        "plugins.safetensors", "state.json"};
    static char bytes[1 << 16];

    (void)state;
    for (size_t f = 0; f < 4; f++) {
        for (int kind = 0; kind < 3; kind++) {
            struct bl_checkpoint_reader *r = NULL;
            struct bl_error err = BL_ERROR_INIT;
            const char *path = in_folder("damage/1");
            char file[256];
            size_t n;
            FILE *stream;
            write_step(in_folder("damage"), 1, 2.0f, 0);
            snprintf(file, sizeof(file), "%s/%s", path, files[f]);
            stream = fopen(file, "rb");
            assert_non_null(stream);
            n = fread(bytes, 1, sizeof(bytes), stream);
            fclose(stream);
            if (kind == 0)
                bytes[n - 3] = (char)(bytes[n - 3] ^ 16);
            if (kind == 2) {
                assert_int_equal(unlink(file), 0);
            } else {
                stream = fopen(file, "wb");
                fwrite(bytes, 1, kind == 1 ? n - 5 : n, stream);
                fclose(stream);
            }
            if (bl_checkpoint_open(path, &r, &err) == 0)
                fail_msg("%s, damage %d: accepted", files[f], kind);
            assert_null(r);
            assert_int_equal(err.code, BL_EXIT_CHECKPOINT);
            assert_non_null(strstr(err.text, files[f]));
        }
    }
}

static void put_state(const char *text)
{
    FILE *f = fopen(in_folder("damage/1/state.json"), "wb");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void test_hostile_state(void **state)
{
    static const char *const texts[] = {"",
                                        "[]",
                                        "{}",
                                        "{\"format\":2}",
                                        "{\"format\":1,\"step\":-1}",
                                        "{\"format\":1,\"step\":1,\"sample\":1,\"seed\":\"1\","
                                        "\"attempt\":1,\"layout\":{\"ranks\":1,"
                                        "\"micro\":1}}",
                                        "{\"format\":1,\"step\":1,\"updates\":1,\"sample\":1,"
                                        "\"seed\":1,\"attempt\":1,\"layout\":{\"ranks\":1,"
                                        "\"micro\":1}}",
                                        "{\"format\":1,\"step\":1,\"updates\":1,\"sample\":1,"
                                        "\"seed\":\"1\",\"attempt\":1,\"layout\":7}",
                                        "{\"format\":1,\"step\":1,\"updates\":1,\"sample\":1,"
                                        "\"seed\":\"1\",\"attempt\":1,\"layout\":{\"ranks\":"
                                        "1,\"micro\":1},\"xxh64\":[]}",
                                        "{\"format\":1,\"step\":1,\"updates\":1,\"sample\":1,"
                                        "\"seed\":\"1\",\"attempt\":9999999999,\"layout\":{"
                                        "\"ranks\":1,\"micro\":1}}",
                                        "{\"format\":1,\"format\":1}"};

    (void)state;
    write_step(in_folder("damage"), 1, 2.0f, 0);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct bl_checkpoint_reader *r = NULL;
        struct bl_error err = BL_ERROR_INIT;
        put_state(texts[i]);
        if (bl_checkpoint_open(in_folder("damage/1"), &r, &err) == 0)
            fail_msg("accepted: %s", texts[i]);
        assert_int_equal(err.code, BL_EXIT_CHECKPOINT);
        assert_non_null(strstr(err.text, "state.json"));
    }
}

static size_t count_entries(const char *directory)
{
    DIR *d = opendir(directory);
    size_t n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

static void test_keep_and_leftovers(void **state)
{
    const char *directory = in_folder("keep");
    size_t count;

    (void)state;
    for (uint64_t s = 1; s <= 4; s++)
        write_step(directory, 9 * s, 1.0f, 0);
    assert_int_equal(count_entries(directory), 4); /* 0 keeps all */
    assert_int_equal(mkdir(in_folder("keep/.tmp-2-99"), 0700), 0);
    assert_int_equal(mkdir(in_folder("keep/.tmp-4-99"), 0700), 0); /* of a later attempt */
    assert_int_equal(mkdir(in_folder("keep/.old-2-9"), 0700), 0);  /* killed while removing */
    fclose(fopen(in_folder("keep/.old-2-9/model.safetensors"), "w"));
    assert_int_equal(mkdir(in_folder("keep/100"), 0700), 0);  /* without state.json */
    assert_int_equal(mkdir(in_folder("keep/0200"), 0700), 0); /* no step */
    fclose(fopen(in_folder("keep/0200/state.json"), "w"));
    write_step(directory, 45, 1.0f, 2);
    assert_int_equal(access(in_folder("keep/45"), F_OK), 0);
    assert_int_equal(access(in_folder("keep/36"), F_OK), 0);
    assert_int_equal(access(in_folder("keep/27"), F_OK), -1);
    assert_int_equal(access(in_folder("keep/.tmp-2-99"), F_OK), -1);
    assert_int_equal(access(in_folder("keep/.tmp-4-99"), F_OK), 0);
    assert_int_equal(access(in_folder("keep/.old-2-9"), F_OK), -1);
    assert_int_equal(count_entries(directory), 5);
    assert_int_equal(newest(directory, &count), 100); /* for a reader to refuse */
    assert_int_equal(count, 3);
}

static void test_replaces_a_step(void **state)
{
    struct bl_checkpoint_reader *r;
    struct bl_error err = BL_ERROR_INIT;
    struct model m;

    (void)state;
    write_step(in_folder("again"), 10, 1.0f, 2);
    write_step(in_folder("again"), 10, 5.0f, 2);
    assert_int_equal(count_entries(in_folder("again")), 1);
    make_model(&m, 0, 0.0f);
    r = open_good(in_folder("again/10"));
    assert_int_equal(read_into(r, &m, 2, 4, &err), 0);
    assert_true(m.a[0] == 5.0f);
    bl_checkpoint_close(r);
}

/* A write that fails leaves the older checkpoint and nothing of itself. */
static void test_failed_write(void **state)
{
    const char *directory = in_folder("failed");
    struct bl_error err = BL_ERROR_INIT;
    struct model m;

    (void)state;
    write_step(directory, 10, 1.0f, 2);
    make_model(&m, 20, 2.0f);
    m.states[3].name = m.states[2].name;
    assert_int_equal(write_checkpoint(directory, &m.c, 2, &err), -1);
    assert_non_null(strstr(err.text, "two tensors are named b.master"));
    make_model(&m, 20, 2.0f);
    m.plugins[1].key = "guard.spike";
    assert_int_equal(write_checkpoint(directory, &m.c, 2, &err), -1);
    assert_int_equal(count_entries(directory), 1);
    bl_checkpoint_close(open_good(in_folder("failed/10")));
    make_model(&m, 20, 2.0f);
    assert_int_equal(write_checkpoint("/proc/nowhere", &m.c, 2, &err), -1);
}

/* ---- comparing ------------------------------------------------------------------------------- */

static char *text;
static size_t text_size;

static int compare(const char *a, const char *b)
{
    struct bl_error err = BL_ERROR_INIT;
    int different = -1;
    FILE *out;

    free(text);
    text = NULL;
    out = open_memstream(&text, &text_size);
    if (bl_checkpoint_compare(a, b, out, &different, &err) != 0)
        fail_msg("%s", err.text);
    fclose(out);
    return different;
}

static void test_compare(void **state)
{
    uint64_t sum;
    struct bl_tensor t[3];
    float x[4] = {1, 2, 3, 4}, y[4] = {1, 2, 3, 4}, z[2] = {0.0f, NAN};
    const char *a = in_folder("a.safetensors"), *b = in_folder("b.safetensors");
    struct bl_error err = BL_ERROR_INIT;

    (void)state;
    write_step(in_folder("one"), 10, 1.0f, 2);
    write_step(in_folder("two"), 10, 1.0f, 2);
    assert_int_equal(compare(in_folder("one/10"), in_folder("two/10")), 0);
    assert_non_null(strstr(text, "all 6 tensors are identical"));
    assert_non_null(strstr(text, "b.moment1         identical"));
    write_step(in_folder("two"), 10, 1.5f, 2); /* every weight is off by 0.5 */
    assert_int_equal(compare(in_folder("one/10"), in_folder("two/10")), 1);
    assert_non_null(strstr(text, "a.weight          max 5.000e-01  rms 5.000e-01  6 of 6"));
    assert_non_null(strstr(text, "6 of 6 tensors differ"));

    t[0] = tensor("same", 4, 0, x);
    t[1] = tensor("moved", 4, 0, x);
    t[2] = tensor("gone", 2, 0, z);
    assert_int_equal(bl_safetensors_write(a, t, 3, NULL, &sum, &err), 0);
    assert_int_equal(compare(a, a), 0); /* NaN is equal to itself */
    y[1] = 4.0f;                        /* one of four by 2: rms 1 */
    t[1] = tensor("moved", 4, 0, y);
    t[2] = tensor("new", 2, 0, z);
    assert_int_equal(bl_safetensors_write(b, t, 3, NULL, &sum, &err), 0);
    assert_int_equal(compare(a, b), 1);
    assert_non_null(strstr(text, "same   identical"));
    assert_non_null(strstr(text, "moved  max 2.000e+00  rms 1.000e+00  1 of 4 elements differ\n"));
    assert_non_null(strstr(text, "gone   only in "));
    assert_non_null(strstr(text, "new    only in "));
    assert_non_null(strstr(text, "3 of 4 tensors differ"));
    y[1] = 2.0f;
    y[2] = NAN;
    t[2] = tensor("gone", 1, 0, z);
    assert_int_equal(bl_safetensors_write(b, t, 3, NULL, &sum, &err), 0);
    assert_int_equal(compare(a, b), 1);
    assert_non_null(strstr(text, "1 of 4 elements differ, 1 of them by NaN or infinity"));
    assert_non_null(strstr(text, "shape (2) against (1)"));
    z[0] = -0.0f;
    t[1] = tensor("moved", 4, 0, x);
    t[2] = tensor("gone", 2, 0, z);
    assert_int_equal(bl_safetensors_write(b, t, 3, NULL, &sum, &err), 0);
    assert_int_equal(compare(a, b), 1);
    assert_non_null(strstr(text, "gone   equal values, other bits"));
}

static void test_weights_command(void **state)
{
    char name[] = "weights", bad[] = "--verbose";
    char *one = strdup(in_folder("one/10")), *two = strdup(in_folder("two/10"));
    char *same[] = {name, one, one}, *differ[] = {name, one, two}, *list[] = {name, one};
    char *unknown[] = {name, bad}, *absent[] = {name, bad + 2};
    struct bl_error err = BL_ERROR_INIT;
    FILE *out;

    (void)state;
    assert_int_equal(bl_cmd_weights(3, same, &err), 0);
    assert_int_equal(bl_cmd_weights(3, differ, &err), -1);
    assert_int_equal(err.code, BL_EXIT_FAILED);
    assert_int_equal(bl_cmd_weights(2, list, &err), 0);
    assert_int_equal(bl_cmd_weights(1, list, &err), -1);
    assert_int_equal(err.code, BL_EXIT_USAGE);
    assert_int_equal(bl_cmd_weights(2, unknown, &err), -1);
    assert_int_equal(err.code, BL_EXIT_USAGE);
    assert_int_equal(bl_cmd_weights(2, absent, &err), -1);
    assert_int_equal(err.code, BL_EXIT_CHECKPOINT);
    free(text);
    text = NULL;
    out = open_memstream(&text, &text_size);
    assert_int_equal(bl_checkpoint_list(one, out, &err), 0);
    fclose(out);
    /* b = 1, 0, -1, -2: mean -0.5, rms sqrt(6/4) */
    assert_non_null(
        strstr(text, "b                 (4)               F32    1.2247e+00  -5.0000e-01"));
    assert_non_null(strstr(text, "6 tensors, 30 elements"));
    free(one);
    free(two);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[128];

    (void)state;
    free(text);
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_other_model),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_hostile_state),
        cmocka_unit_test(test_keep_and_leftovers),
        cmocka_unit_test(test_replaces_a_step),
        cmocka_unit_test(test_failed_write),
        cmocka_unit_test(test_compare),
        cmocka_unit_test(test_weights_command),
    };
    return cmocka_run_group_tests_name("checkpoint", tests, make_folder, remove_folder);
}
