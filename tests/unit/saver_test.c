/* Saves beside the training: shards that come back as one, what is kept, what a failure leaves. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "checkpoint/internal.h"
#include "checkpoint/merged.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/saver.h"
#include "tests/lib/checkpoint.h"

static char folder[] = "/tmp/ballast-saver-XXXXXX";

static const char *in_folder(const char *name)
{
    static char paths[64][200];
    static int next;
    char *path = paths[next++ % 64];

    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

/* ---- a model of odd shapes ------------------------------------------------------------------- */

enum { TENSORS = 4, ELEMENTS = 5 + 21 + 1 + 24 };

static const struct {
    const char *name;
    uint32_t ndim;
    uint64_t dims[4];
    uint64_t offset, count;
} shapes[TENSORS] = {{"a.bias.master", 1, {5, 0, 0, 0}, 0, 5},
                     {"b.weight.master", 2, {3, 7, 0, 0}, 5, 21},
                     {"c.gain.master", 1, {1, 0, 0, 0}, 26, 1},
                     {"d.weight.master", 2, {6, 4, 0, 0}, 27, 24}};

struct model {
    float numbers[ELEMENTS];
    struct bl_tensor weights[TENSORS], states[TENSORS];
    struct bl_checkpoint_slice slices[TENSORS];
    struct bl_checkpoint_plugin plugin;
    struct bl_checkpoint c;
};

/* Elements [begin, end) of the arena as shard `shard` of `shards`; empty slices only when asked. */
static void make_model(struct model *m, uint64_t step, float base, uint64_t begin, uint64_t end,
                       uint32_t shard, uint32_t shards, int empty)
{
    static const unsigned char bytes[3] = {7, 0, 255};

    memset(m, 0, sizeof(*m));
    for (int i = 0; i < ELEMENTS; i++)
        m->numbers[i] = base + (float)i;
    m->plugin = (struct bl_checkpoint_plugin){"guard.skip_step", bytes, 3};
    m->c = (struct bl_checkpoint){
        .info = {.step = step, .sample = 8 * step, .attempt = 2, .ranks = 4, .micro = 1, .plan = 9},
        .weights = m->weights,
        .states = m->states,
        .slices = shards > 1 || empty ? m->slices : NULL,
        .shard = shard,
        .shards = shards,
        .plugins = &m->plugin,
        .plugin_count = 1,
        .config = "run = { name = \"x\"; };"};
    for (int i = 0; i < TENSORS; i++) {
        struct bl_tensor *t = &m->weights[i], *s = &m->states[m->c.state_count];
        uint64_t first = shapes[i].offset, last = first + shapes[i].count;
        *t = (struct bl_tensor){.size = sizeof(*t),
                                .dtype = BL_FP32,
                                .device = BL_DEVICE_CPU,
                                .ndim = shapes[i].ndim,
                                .count = shapes[i].count,
                                .data = m->numbers + first,
                                .name = shapes[i].name};
        memcpy(t->dims, shapes[i].dims, sizeof(t->dims));
        first = first > begin ? first : begin;
        last = last < end ? last : end;
        if (first >= last && !empty)
            continue;
        if (first > last)
            first = last = shapes[i].offset;
        *s = *t;
        m->slices[m->c.state_count] = (struct bl_checkpoint_slice){first - shapes[i].offset,
                                                                   last - shapes[i].offset,
                                                                   t->ndim,
                                                                   {t->dims[0], t->dims[1], 0, 0}};
        if (shards > 1 || empty) {
            s->ndim = 1;
            s->dims[0] = s->count = last - first;
            s->data = m->numbers + first;
        }
        m->c.state_count++;
    }
    m->c.weight_count = shard == 0 ? TENSORS : 0;
}

/* A checkpoint of step 3 as so many processes write it, cut at `border`. */
static const char *write_shards(const char *name, uint32_t shards, const uint64_t *border)
{
    const char *path = in_folder(name);
    struct bl_error err = BL_ERROR_INIT;
    struct bl_checkpoint_sums sums[8];
    uint64_t optimizer[8];
    struct model m;

    bl_checkpoint_remove(path);
    assert_int_equal(mkdir(path, 0777), 0);
    for (uint32_t s = shards; s-- > 0;) { /* in any order, process 0 last */
        make_model(&m, 3, 1.0f, border[s], border[s + 1], s, shards, 0);
        if (bl_checkpoint_write_files(path, &m.c, &sums[s], &err) != 0)
            fail_msg("%s", err.text);
        optimizer[s] = sums[s].optimizer;
    }
    if (bl_checkpoint_write_state(path, &m.c, &sums[0], optimizer, &err) != 0)
        fail_msg("%s", err.text);
    return path;
}

static struct bl_checkpoint_reader *open_good(const char *path)
{
    struct bl_checkpoint_reader *r = NULL;
    struct bl_error err = BL_ERROR_INIT;

    if (bl_checkpoint_open(path, &r, &err) != 0)
        fail_msg("%s", err.text);
    return r;
}

static const uint64_t borders[][9] = {{0, ELEMENTS},
                                      {0, 13, ELEMENTS},
                                      {0, 5, 26, ELEMENTS},       /* between tensors */
                                      {0, 6, 25, 27, ELEMENTS},   /* within them */
                                      {0, 0, 1, 1, 50, ELEMENTS}, /* empty shards */
                                      {0, 7, 8, 9, 10, 11, 12, ELEMENTS}};
static const uint32_t counts[] = {1, 2, 3, 4, 5, 7};

/* What any number of processes wrote, any part of it can be read from. */
static void test_shards_merge(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
        const char *path = write_shards("merge", counts[k], borders[k]);
        struct bl_checkpoint_reader *r = open_good(path);
        assert_int_equal(bl_merged_shards(path), counts[k]);
        assert_string_equal(bl_checkpoint_config(r), "run = { name = \"x\"; };");
        assert_null(bl_checkpoint_from(r));
        for (uint64_t begin = 0; begin <= ELEMENTS; begin += 3) {
            for (uint64_t end = begin; end <= ELEMENTS; end += 4) {
                struct bl_error err = BL_ERROR_INIT;
                struct model m;
                make_model(&m, 0, -100.0f, begin, end, 0, 1, 1);
                const struct bl_checkpoint_tensors to = {NULL, 0, m.states, TENSORS, m.slices};
                if (bl_checkpoint_read(r, &to, &err) != 0)
                    fail_msg("%s", err.text);
                for (uint64_t i = 0; i < ELEMENTS; i++)
                    assert_true(m.numbers[i] ==
                                (i >= begin && i < end ? 1.0f : -100.0f) + (float)i);
            }
        }
        bl_checkpoint_close(r);
    }
}

static void test_shards_of_another_model(void **state)
{
    struct bl_checkpoint_reader *r = open_good(write_shards("other", 4, borders[3]));
    struct bl_error err = BL_ERROR_INIT;
    struct model m;

    (void)state;
    make_model(&m, 0, 0.0f, 0, ELEMENTS, 0, 1, 1);
    struct bl_checkpoint_tensors to = {NULL, 0, m.states, TENSORS, m.slices};
    m.slices[1].dims[0] = 7;
    m.slices[1].dims[1] = 3;
    assert_int_equal(bl_checkpoint_fits(r, &to, &err), -1);
    assert_non_null(strstr(err.text, "b.weight.master is (3, 7), this model needs (7, 3)"));
    make_model(&m, 0, 0.0f, 0, ELEMENTS, 0, 1, 1);
    to.state_count = 3;
    assert_int_equal(bl_checkpoint_read(r, &to, &err), -1);
    assert_non_null(strstr(err.text, "d.weight.master, which this model does not have"));
    bl_checkpoint_close(r);
}

/* Shards that do not fit together, each of them a file without a fault, with fitting checksums. */
static void refuses_shards(uint32_t shards, const uint64_t (*part)[2], const char *word)
{
    const char *path = in_folder("unfit");
    struct bl_checkpoint_reader *r = NULL;
    struct bl_error err = BL_ERROR_INIT;
    struct bl_checkpoint_sums sums = {0};
    uint64_t optimizer[8];
    struct model m;

    bl_checkpoint_remove(path);
    assert_int_equal(mkdir(path, 0777), 0);
    for (uint32_t s = shards; s-- > 0;) {
        make_model(&m, 3, 1.0f, part[s][0], part[s][1], s, shards, 0);
        assert_int_equal(bl_checkpoint_write_files(path, &m.c, &sums, &err), 0);
        optimizer[s] = sums.optimizer;
    }
    assert_int_equal(bl_checkpoint_write_state(path, &m.c, &sums, optimizer, &err), 0);
    assert_int_equal(bl_checkpoint_open(path, &r, &err), -1);
    assert_int_equal(err.code, BL_EXIT_CHECKPOINT);
    if (!strstr(err.text, word))
        fail_msg("no \"%s\" in: %s", word, err.text);
}

static void test_shards_that_do_not_cover(void **state)
{
    static const uint64_t hole[][2] = {{0, 8}, {9, ELEMENTS}};
    static const uint64_t overlap[][2] = {{0, 8}, {7, ELEMENTS}};
    static const uint64_t tail[][2] = {{0, 8}, {8, ELEMENTS - 1}};
    static const uint64_t start[][2] = {{1, 8}, {8, ELEMENTS}};

    (void)state;
    refuses_shards(2, hole,
                   "optimizer-2-of-2.safetensors: tensor b.weight.master: elements before");
    refuses_shards(2, overlap, "some of its elements are in another shard too");
    refuses_shards(2, tail, "d.weight.master: elements after these are in no shard");
    refuses_shards(2, start, "a.bias.master: elements before these are in no shard");
}

/* Files without a fault, with fitting checksums, whose slices are none. */
static void test_slices_that_are_none(void **state)
{
    static const char *const wrong[] = {"",
                                        "[]",
                                        "{\"begin\":0,\"end\":5}",
                                        "{\"begin\":0,\"end\":4,\"shape\":[5]}",
                                        "{\"begin\":1,\"end\":6,\"shape\":[5]}",
                                        "{\"begin\":5,\"end\":0,\"shape\":[5]}",
                                        "{\"begin\":-1,\"end\":4,\"shape\":[5]}",
                                        "{\"begin\":0,\"end\":5,\"shape\":5}",
                                        "{\"begin\":0,\"end\":5,\"shape\":[-5]}",
                                        "{\"begin\":0,\"end\":5,\"shape\":[1,1,1,1,5]}",
                                        "{\"begin\":0,\"end\":5,\"shape\":[4294967296,4294967296]}",
                                        "{\"begin\":0,\"begin\":0,\"end\":5,\"shape\":[5]}"};
    const char *path = write_shards("none", 2, (const uint64_t[]){0, 5, ELEMENTS});
    struct model m;

    (void)state;
    make_model(&m, 3, 1.0f, 0, 5, 0, 2, 0);
    for (size_t i = 0; i <= sizeof(wrong) / sizeof(wrong[0]); i++) {
        const char *text = i > 0 ? wrong[i - 1] : "{\"begin\":0,\"end\":5,\"shape\":[5]}";
        const char *const metadata[] = {m.states[0].name, text, NULL};
        struct bl_checkpoint_reader *r = NULL;
        struct bl_error err = BL_ERROR_INIT;
        struct bl_checkpoint_sums sums = {0};
        uint64_t optimizer[2];
        char file[300];
        make_model(&m, 3, 1.0f, 5, ELEMENTS, 1, 2, 0);
        assert_int_equal(bl_checkpoint_write_files(path, &m.c, &sums, &err), 0);
        optimizer[1] = sums.optimizer;
        make_model(&m, 3, 1.0f, 0, 5, 0, 2, 0);
        assert_int_equal(bl_checkpoint_write_files(path, &m.c, &sums, &err), 0);
        snprintf(file, sizeof(file), "%s/optimizer-1-of-2.safetensors", path);
        assert_int_equal(bl_safetensors_write(file, m.states, 1, metadata, &optimizer[0], &err), 0);
        assert_int_equal(bl_checkpoint_write_state(path, &m.c, &sums, optimizer, &err), 0);
        if (bl_checkpoint_open(path, &r, &err) != (i > 0 ? -1 : 0))
            fail_msg("%s: %s", text, i > 0 ? "taken" : err.text);
        bl_checkpoint_close(r);
        if (i > 0 && !strstr(err.text, "optimizer-1-of-2.safetensors: tensor a.bias.master: its "
                                       "metadata does not say"))
            fail_msg("%s: %s", text, err.text);
    }
}

/* ---- damage ---------------------------------------------------------------------------------- */

static size_t read_bytes(const char *path, char *bytes, size_t limit)
{
    FILE *f = fopen(path, "rb");
    size_t n;

    assert_non_null(f);
    n = fread(bytes, 1, limit, f);
    assert_true(n < limit);
    fclose(f);
    return n;
}

static void write_bytes(const char *path, const char *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static void refuses(const char *path, const char *file, const char *what)
{
    struct bl_checkpoint_reader *r = NULL;
    struct bl_error err = BL_ERROR_INIT;

    if (bl_checkpoint_open(path, &r, &err) == 0)
        fail_msg("%s, %s: accepted", file, what);
    assert_null(r);
    assert_int_equal(err.code, BL_EXIT_CHECKPOINT);
    if (!strstr(err.text, file))
        fail_msg("%s, %s: not named in: %s", file, what, err.text);
}

/* Every byte of every file changed in turn, and every file cut at every byte. */
static void test_every_byte_counts(void **state)
{
    static const char *const files[] = {"model.safetensors",
                                        "optimizer-1-of-3.safetensors",
                                        "optimizer-2-of-3.safetensors",
                                        "optimizer-3-of-3.safetensors",
                                        "plugins.safetensors",
                                        "state.json"};
    const char *path = write_shards("bytes", 3, borders[2]);
    static char bytes[1 << 14];

    (void)state;
    for (size_t f = 0; f < sizeof(files) / sizeof(files[0]); f++) {
        char file[300];
        size_t n;
        snprintf(file, sizeof(file), "%s/%s", path, files[f]);
        n = read_bytes(file, bytes, sizeof(bytes));
        for (size_t i = 0; i < n; i++) {
            /* Whitespace of JSON is no content: state.json may be written in other lines. */
            if (f == 5 && (bytes[i] == ' ' || bytes[i] == '\n'))
                continue;
            bytes[i] = (char)(bytes[i] ^ 4);
            write_bytes(file, bytes, n);
            refuses(path, files[f], "a changed byte");
            bytes[i] = (char)(bytes[i] ^ 4);
        }
        for (size_t i = 0; i < n; i++) {
            write_bytes(file, bytes, i);
            refuses(path, files[f], "cut");
        }
        assert_int_equal(unlink(file), 0);
        refuses(path, files[f], "not there");
        assert_int_equal(mkdir(file, 0777), 0);
        refuses(path, files[f], "a folder");
        assert_int_equal(rmdir(file), 0);
        write_bytes(file, bytes, n);
        bl_checkpoint_close(open_good(path));
    }
}

/* Good files of another step in their place. */
static void test_swapped_files(void **state)
{
    static const char *const files[] = {"model.safetensors", "optimizer-1-of-1.safetensors",
                                        "state.json"};
    static char ours[1 << 14];
    struct bl_error err = BL_ERROR_INIT;
    struct model m;
    char file[300];

    (void)state;
    for (uint64_t step = 1; step <= 2; step++) {
        make_model(&m, step, (float)step, 0, ELEMENTS, 0, 1, 0);
        assert_int_equal(write_checkpoint(in_folder("swap"), &m.c, 0, &err), 0);
    }
    for (size_t f = 0; f < 3; f++) {
        char other[1 << 14];
        size_t n, k;
        n = read_bytes(in_folder("swap/1/model.safetensors"), ours, sizeof(ours));
        snprintf(file, sizeof(file), "%s/%s", in_folder("swap/1"), files[f]);
        n = read_bytes(file, ours, sizeof(ours));
        snprintf(file, sizeof(file), "%s/%s", in_folder("swap/2"), files[f]);
        k = read_bytes(file, other, sizeof(other));
        write_bytes(file, ours, n);
        refuses(in_folder("swap/2"), f == 2 ? "model.safetensors" : files[f], "of another step");
        write_bytes(file, other, k);
        bl_checkpoint_close(open_good(in_folder("swap/2")));
    }
}

/* ---- the saver ------------------------------------------------------------------------------- */

static int lost; /* what owns() answers */

static int owns(void *context, struct bl_error *err)
{
    (void)context;
    return lost ? bl_error_set(err, BL_EXIT_FAILED, "taken over") : 0;
}

static struct bl_saver *make_saver(const char *directory, int copy, uint64_t keep,
                                   uint64_t keep_every, uint64_t ring)
{
    const struct bl_saver_setup setup = {.directory = directory,
                                         .copy = copy,
                                         .keep = keep,
                                         .keep_every = keep_every,
                                         .ring = ring,
                                         .owns = owns};
    struct bl_saver *s = NULL;
    struct bl_error err = BL_ERROR_INIT;

    if (bl_saver_make(&setup, &s, &err) != 0)
        fail_msg("%s", err.text);
    return s;
}

static struct bl_saver_report save(struct bl_saver *s, uint64_t step, float base, uint32_t where)
{
    struct bl_saver_report report;
    struct bl_error err = BL_ERROR_INIT;
    struct model m;

    make_model(&m, step, base, 0, ELEMENTS, 0, 1, 0);
    assert_int_equal(bl_saver_begin(s, &m.c, where, &err), 0);
    memset(&m, 0xee, sizeof(m)); /* whatever the training does now */
    assert_true(bl_saver_busy(s));
    assert_int_equal(bl_saver_wait(s, &report, &err), 0);
    assert_false(bl_saver_busy(s));
    return report;
}

/* The steps in a folder as "3 6 9 "; other entries as "?". */
static const char *steps_in(const char *directory)
{
    static char text[256];
    struct bl_error err = BL_ERROR_INIT;
    uint64_t *steps = NULL;
    size_t count = 0, n = 0;
    struct dirent *entry;
    DIR *d = opendir(directory);

    assert_int_equal(bl_checkpoint_steps(directory, &steps, &count, &err), 0);
    text[0] = '\0';
    for (size_t i = 0; i < count; i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%llu ", (unsigned long long)steps[i]);
    while (d && (entry = readdir(d)))
        if (strncmp(entry->d_name, ".tmp", 4) == 0 || strncmp(entry->d_name, ".o", 2) == 0)
            n += (size_t)snprintf(text + n, sizeof(text) - n, "?");
    if (d)
        closedir(d);
    free(steps);
    return text;
}

static void check_numbers(const char *path, float base)
{
    struct bl_checkpoint_reader *r = open_good(path);
    struct bl_error err = BL_ERROR_INIT;
    struct model m;
    uint64_t bytes;

    make_model(&m, 0, -7.0f, 0, ELEMENTS, 0, 1, 0);
    const struct bl_checkpoint_tensors to = {m.weights, TENSORS, m.states, TENSORS, NULL};
    assert_int_equal(bl_checkpoint_read(r, &to, &err), 0);
    for (int i = 0; i < ELEMENTS; i++)
        assert_true(m.numbers[i] == base + (float)i);
    assert_memory_equal(bl_checkpoint_plugin(r, "guard.skip_step", &bytes), "\7\0\377", 3);
    bl_checkpoint_close(r);
}

/* What is saved is what was there at begin, with a copy and without. */
static void test_save(void **state)
{
    struct bl_saver_report report;
    struct bl_error err = BL_ERROR_INIT;

    (void)state;
    for (int copy = 0; copy < 2; copy++) {
        struct bl_saver *s = make_saver(in_folder(copy ? "async" : "sync"), copy, 3, 0, 0);
        struct model m;
        make_model(&m, 0, 0.0f, 0, ELEMENTS, 0, 1, 0);
        assert_int_equal(bl_saver_reserve(s, &m.c), 0);
        assert_int_equal(bl_saver_poll(s, &report, &err), 0);
        assert_int_equal(report.event, BL_SAVER_NOTHING);
        for (uint64_t step = 1; step <= 3; step++) {
            report = save(s, step, (float)step, BL_SAVE_CHECKPOINT);
            assert_int_equal(report.event, BL_SAVER_SAVED);
            assert_int_equal(report.step, step);
            assert_int_equal(report.published, BL_SAVE_CHECKPOINT);
            assert_int_equal(report.bytes, 2 * ELEMENTS * sizeof(float));
        }
        bl_saver_free(s);
        check_numbers(in_folder(copy ? "async/1" : "sync/1"), 1.0f);
        check_numbers(in_folder(copy ? "async/3" : "sync/3"), 3.0f);
    }
}

static void test_what_is_kept(void **state)
{
    struct bl_saver *s = make_saver(in_folder("kept"), 1, 2, 4, 3);

    (void)state;
    for (uint64_t step = 1; step <= 11; step++)
        save(s, step, (float)step,
             step % 2 == 0 ? BL_SAVE_CHECKPOINT | (step % 3 == 0 ? BL_SAVE_RING : 0)
                           : BL_SAVE_RING);
    assert_string_equal(steps_in(in_folder("kept")), "4 8 10 ");
    assert_string_equal(steps_in(in_folder("kept/ring")), "7 9 11 ");
    save(s, 12, 12.0f, BL_SAVE_CHECKPOINT | BL_SAVE_RING);
    assert_string_equal(steps_in(in_folder("kept")), "4 8 10 12 ");
    assert_string_equal(steps_in(in_folder("kept/ring")), "9 11 12 ");
    check_numbers(in_folder("kept/12"), 12.0f);
    check_numbers(in_folder("kept/ring/12"), 12.0f);
    check_numbers(in_folder("kept/ring/9"), 9.0f);
    bl_saver_free(s);
}

/* In place of libc's: FAT, some FUSE file systems and object stores have no second names. */
static int no_links, links;

int linkat(int from, const char *name, int to, const char *other, int flags)
{
    if (no_links) {
        errno = EPERM;
        return -1;
    }
    links++;
    return (int)syscall(SYS_linkat, from, name, to, other, flags);
}

static void test_ring_without_links(void **state)
{
    struct bl_saver *s = make_saver(in_folder("copied"), 1, 1, 0, 2);
    struct stat first, second;

    (void)state;
    for (int step = 1; step <= 3; step++) {
        no_links = step == 2;
        links = 0;
        struct bl_saver_report report =
            save(s, (uint64_t)step, (float)step, BL_SAVE_CHECKPOINT | BL_SAVE_RING);
        assert_int_equal(report.event, BL_SAVER_SAVED);
        assert_int_equal(report.published, BL_SAVE_CHECKPOINT | BL_SAVE_RING);
        assert_int_equal(links, no_links ? 0 : 4);
    }
    no_links = 0;
    assert_string_equal(steps_in(in_folder("copied/ring")), "2 3 ");
    check_numbers(in_folder("copied/ring/2"), 2.0f);
    check_numbers(in_folder("copied/ring/3"), 3.0f);
    assert_int_equal(stat(in_folder("copied/3/state.json"), &first), 0);
    assert_int_equal(stat(in_folder("copied/ring/3/state.json"), &second), 0);
    assert_true(first.st_ino == second.st_ino);
    bl_saver_free(s);
}

/* Of steps after the one that was written nobody knows whether they are good: they neither count
 * nor go. */
static void test_later_steps_do_not_count(void **state)
{
    struct bl_saver *s = make_saver(in_folder("later"), 1, 1, 0, 0);

    (void)state;
    save(s, 60, 1.0f, BL_SAVE_CHECKPOINT);
    save(s, 40, 1.0f, BL_SAVE_CHECKPOINT);
    assert_string_equal(steps_in(in_folder("later")), "40 60 ");
    save(s, 50, 1.0f, BL_SAVE_CHECKPOINT);
    assert_string_equal(steps_in(in_folder("later")), "50 60 ");
    save(s, 60, 2.0f, BL_SAVE_CHECKPOINT);
    assert_string_equal(steps_in(in_folder("later")), "60 ");
    check_numbers(in_folder("later/60"), 2.0f);
    bl_saver_free(s);
}

/* A newer attempt came between begin and the rename. */
static void test_claim_lost(void **state)
{
    struct bl_saver *s = make_saver(in_folder("lost"), 1, 1, 0, 0);
    struct bl_saver_report report;
    struct bl_error err = BL_ERROR_INIT;
    struct model m;

    (void)state;
    save(s, 1, 1.0f, BL_SAVE_CHECKPOINT);
    make_model(&m, 2, 2.0f, 0, ELEMENTS, 0, 1, 0);
    lost = 1;
    assert_int_equal(bl_saver_begin(s, &m.c, BL_SAVE_CHECKPOINT, &err), 0);
    assert_int_equal(bl_saver_wait(s, &report, &err), -1);
    lost = 0;
    assert_string_equal(err.text, "taken over");
    assert_int_equal(report.event, BL_SAVER_NOTHING);
    assert_string_equal(steps_in(in_folder("lost")), "1 ");
    check_numbers(in_folder("lost/1"), 1.0f);
    bl_saver_free(s);
}

/* Killed between the two renames that replace a step. */
static void test_recover(void **state)
{
    struct bl_saver *s = make_saver(in_folder("recover"), 1, 3, 0, 0);

    (void)state;
    save(s, 1, 1.0f, BL_SAVE_CHECKPOINT);
    save(s, 2, 2.0f, BL_SAVE_CHECKPOINT);
    assert_int_equal(rename(in_folder("recover/2"), in_folder("recover/.old-1-2")), 0);
    bl_checkpoint_recover(in_folder("recover"));
    assert_string_equal(steps_in(in_folder("recover")), "1 2 ");
    check_numbers(in_folder("recover/2"), 2.0f);
    /* one that was replaced already does not come back */
    assert_int_equal(mkdir(in_folder("recover/.old-1-2"), 0777), 0);
    bl_checkpoint_recover(in_folder("recover"));
    check_numbers(in_folder("recover/2"), 2.0f);
    /* nor one that was being removed */
    assert_int_equal(rename(in_folder("recover/1"), in_folder("recover/.out-1-1")), 0);
    bl_checkpoint_recover(in_folder("recover"));
    save(s, 3, 3.0f, BL_SAVE_CHECKPOINT);
    assert_string_equal(steps_in(in_folder("recover")), "2 3 ");
    bl_saver_free(s);
}

static void fails_and_goes_on(const char *directory, const char *word, void (*repair)(void))
{
    struct bl_saver *s = make_saver(directory, 1, 1, 0, 0);
    struct bl_saver_report report = save(s, 2, 2.0f, BL_SAVE_CHECKPOINT);
    char path[300];

    assert_int_equal(report.event, BL_SAVER_FAILED);
    assert_int_equal(report.published, 0);
    if (!strstr(report.error.text, word))
        fail_msg("no \"%s\" in: %s", word, report.error.text);
    assert_string_equal(steps_in(directory), "1 ");
    snprintf(path, sizeof(path), "%s/1", directory);
    check_numbers(path, 1.0f);
    repair();
    report = save(s, 3, 3.0f, BL_SAVE_CHECKPOINT);
    assert_int_equal(report.event, BL_SAVER_SAVED);
    assert_string_equal(steps_in(directory), "3 ");
    bl_saver_free(s);
}

static void make_room(void)
{
    assert_int_equal(unlink(in_folder("disk/fill")), 0);
}

static void test_full_disk(void **state)
{
    static char page[4096];
    const char *directory = in_folder("disk");
    struct bl_saver *s;
    FILE *f;

    (void)state;
    mkdir(directory, 0777);
    if (mount("none", directory, "tmpfs", 0, "size=256k") != 0) {
        print_message("no tmpfs can be mounted here (not root?)\n");
        skip();
    }
    s = make_saver(directory, 1, 1, 0, 0);
    save(s, 1, 1.0f, BL_SAVE_CHECKPOINT);
    bl_saver_free(s);
    f = fopen(in_folder("disk/fill"), "wb");
    setvbuf(f, NULL, _IONBF, 0);
    while (fwrite(page, 1, sizeof(page), f) == sizeof(page))
        ;
    fclose(f);
    fails_and_goes_on(directory, "No space left", make_room);
    assert_int_equal(umount(directory), 0);
}

/* A file where the folder should be: permissions do not stop root. */
static void test_folder_that_takes_nothing(void **state)
{
    struct bl_saver *s = make_saver(in_folder("blocked"), 1, 1, 0, 0);

    (void)state;
    save(s, 1, 1.0f, BL_SAVE_CHECKPOINT);
    bl_saver_free(s);
    write_bytes(in_folder("blocked/.tmp-2-2"), "", 0);
    s = make_saver(in_folder("blocked"), 1, 1, 0, 0);
    assert_int_equal(save(s, 2, 2.0f, BL_SAVE_CHECKPOINT).event, BL_SAVER_FAILED);
    check_numbers(in_folder("blocked/1"), 1.0f);
    /* the failed save took away what was in its way */
    assert_int_equal(save(s, 2, 2.0f, BL_SAVE_CHECKPOINT).event, BL_SAVER_SAVED);
    assert_string_equal(steps_in(in_folder("blocked")), "2 ");
    bl_saver_free(s);
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
    umount(in_folder("disk"));
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shards_merge),
        cmocka_unit_test(test_shards_of_another_model),
        cmocka_unit_test(test_shards_that_do_not_cover),
        cmocka_unit_test(test_slices_that_are_none),
        cmocka_unit_test(test_every_byte_counts),
        cmocka_unit_test(test_swapped_files),
        cmocka_unit_test(test_save),
        cmocka_unit_test(test_what_is_kept),
        cmocka_unit_test(test_ring_without_links),
        cmocka_unit_test(test_later_steps_do_not_count),
        cmocka_unit_test(test_claim_lost),
        cmocka_unit_test(test_recover),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_folder_that_takes_nothing),
    };
    return cmocka_run_group_tests_name("saver", tests, make_folder, remove_folder);
}
