/* The loader: what is accepted, what is refused and why, where plugins are found.
 *
 * Fixtures (tests/fixtures/plugins) lie in $top_builddir/tests/fixtures/plugins/.libs. Damaged
 * files are made from a good one by changing bytes. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "base/random.h"
#include "base/strings.h"
#include "plugin/loader.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static char folder[256]; /* of this test's own files */
static char scratch[300];
static unsigned char *good;
static size_t good_size, good_at; /* good_at: offset of the descriptor */

static const char *fixture(const char *name)
{
    static char path[4][1200];
    static int turn;
    const char *top = getenv("top_builddir");
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/tests/fixtures/plugins/.libs/%s",
             top != NULL ? top : ".", name);
    return path[turn];
}

static void write_scratch(const void *bytes, size_t n)
{
    FILE *f = fopen(scratch, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* The file is refused with exit code 3, its path, and this text. */
static void assert_refused(const char *path, uint32_t kind, const char *text)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_library *l = NULL;
    int rc = bl_library_open(path, kind, &l, &err);
    if (rc == 0)
        fail_msg("%s was accepted, expected: %s", path, text);
    assert_null(l);
    assert_int_equal(err.code, BL_EXIT_PLUGIN);
    if (strstr(err.text, text) == NULL || strstr(err.text, path) == NULL)
        fail_msg("expected '%s' and the path %s in: %s", text, path, err.text);
}

static void assert_patched(size_t at, const void *bytes, size_t n, const char *text)
{
    unsigned char *copy = malloc(good_size);
    assert_non_null(copy);
    memcpy(copy, good, good_size);
    memcpy(copy + at, bytes, n);
    write_scratch(copy, good_size);
    free(copy);
    assert_refused(scratch, 0, text);
}

static void assert_patched32(size_t at, uint32_t value, const char *text)
{
    assert_patched(at, &value, sizeof value, text);
}

static void assert_patched16(size_t at, uint16_t value, const char *text)
{
    assert_patched(at, &value, sizeof value, text);
}

static int setup(void **state)
{
    struct bl_error err = BL_ERROR_INIT;
    const char *tmp = getenv("TMPDIR");
    const uint32_t head[] = {BL_PLUGIN_MAGIC, BL_ABI_MAJOR, sizeof(struct bl_plugin)};
    char *bytes;
    (void)state;
    snprintf(folder, sizeof folder, "%.200s/ballast-loader-XXXXXX", tmp != NULL ? tmp : "/tmp");
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(scratch, sizeof scratch, "%s/scratch.so", folder);
    if (bl_read_file(fixture("regularizer_good.so"), 1 << 30, &bytes, &good_size, &err) != 0) {
        print_error("%s\n", err.text);
        return -1;
    }
    good = (unsigned char *)bytes;
    for (size_t i = 0; i + sizeof head <= good_size; i += 4)
        if (memcmp(good + i, head, sizeof head) == 0)
            good_at = i;
    return good_at != 0 ? 0 : -1;
}

static int teardown(void **state)
{
    char command[600];
    (void)state;
    free(good);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

/* ---- accepted ---------------------------------------------------------------------------------*/

static void good_plugin_loads(void **state)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_library *l = NULL;
    (void)state;
    if (bl_library_open(fixture("regularizer_good.so"), BL_KIND_REGULARIZER, &l, &err) != 0)
        fail_msg("%s", err.text);
    assert_string_equal(bl_library_plugin(l)->name, "good");
    assert_int_equal(bl_library_plugin(l)->kind, BL_KIND_REGULARIZER);
    assert_string_equal(bl_library_path(l), fixture("regularizer_good.so"));
    assert_true(bl_library_checksum(l) == XXH64(good, good_size, 0));
    bl_library_close(l);
    bl_library_close(NULL);
}

static void any_kind_and_symlink(void **state)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_library *l = NULL;
    char link[400], real[PATH_MAX];
    (void)state;
    assert_non_null(realpath(fixture("regularizer_good.so"), real));
    snprintf(link, sizeof link, "%s/some_other_name.so", folder);
    assert_int_equal(symlink(real, link), 0);
    if (bl_library_open(link, 0, &l, &err) != 0)
        fail_msg("%s", err.text);
    assert_string_equal(bl_library_plugin(l)->name, "good");
    bl_library_close(l);
}

static void accepts(const char *name)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_library *l = NULL;
    if (bl_library_open(fixture(name), 0, &l, &err) != 0)
        fail_msg("%s", err.text);
    bl_library_close(l);
}

static void other_good_plugins_load(void **state)
{
    (void)state;
    accepts("regularizer_short_ops.so");
    accepts("schedule_good.so");
#if defined(__x86_64__)
    accepts("schedule_cpu_supports.so"); /* libgcc's constructor is the toolchain's own */
#endif
}

/* ---- refused by the file ----------------------------------------------------------------------*/

static void wrong_descriptor(void **state)
{
    (void)state;
    assert_patched32(good_at + offsetof(struct bl_plugin, magic), 0x12345678, "magic 0x12345678");
    assert_patched16(good_at + offsetof(struct bl_plugin, abi_major), 2,
                     "plugin ABI 2.0, this program has 1.0");
    assert_patched16(good_at + offsetof(struct bl_plugin, abi_major), 0,
                     "plugin ABI 0.0, this program has 1.0");
    assert_patched16(good_at + offsetof(struct bl_plugin, abi_minor), BL_ABI_MINOR + 1,
                     "plugin ABI 1.1, this program has 1.0");
    assert_patched32(good_at + offsetof(struct bl_plugin, size), 72, "descriptor of 72 bytes");
    assert_patched32(good_at + offsetof(struct bl_plugin, size), 88, "descriptor of 88 bytes");
    assert_patched32(good_at + offsetof(struct bl_plugin, kind), 0, "unknown kind 0");
    assert_patched32(good_at + offsetof(struct bl_plugin, kind), BL_KIND_COUNT, "unknown kind 10");
    assert_patched32(good_at + offsetof(struct bl_plugin, ops_size), 24, "ops_size 24");
    assert_patched32(good_at + offsetof(struct bl_plugin, ops_size), 1 << 20, "ops_size 1048576");
    assert_patched32(good_at + offsetof(struct bl_plugin, devices), 0, "devices 0x0");
    assert_patched32(good_at + offsetof(struct bl_plugin, devices), 9, "devices 0x9");
    assert_refused(fixture("regularizer_good.so"), BL_KIND_SCHEDULE,
                   "a regularizer plugin, expected a schedule");
}

static void wrong_file(void **state)
{
    char path[400];
    (void)state;
    assert_patched16(offsetof(Elf64_Ehdr, e_machine), EM_S390, "ELF machine 22");
    assert_patched16(offsetof(Elf64_Ehdr, e_type), ET_EXEC, "ELF type 2");
    assert_patched(EI_CLASS, "\1", 1, "ELF class 1");
    assert_patched(EI_DATA, "\2", 1, "byte order 2");
    assert_patched(0, "MZ", 2, "not an ELF file");
    assert_refused(folder, 0, "not a regular file");
    snprintf(path, sizeof path, "%s/fifo.so", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_refused(path, 0, "not a regular file");
    assert_refused("/dev/null", 0, "not a regular file");
    snprintf(path, sizeof path, "%s/absent.so", folder);
    assert_refused(path, 0, strerror(ENOENT));
    write_scratch("", 0);
    assert_refused(scratch, 0, "0 bytes");
    write_scratch("#!/bin/sh\necho this is a script and no shared object, long enough for one\n",
                  74);
    assert_refused(scratch, 0, "not an ELF file");
}

static void wrong_symbol(void **state)
{
    unsigned char *copy = malloc(good_size);
    int found = 0;
    (void)state;
    assert_non_null(copy);
    for (int round = 0; round < 2; round++) {
        memcpy(copy, good, good_size);
        for (size_t i = 0; i + sizeof BL_PLUGIN_SYMBOL <= good_size; i++) {
            if (memcmp(copy + i, BL_PLUGIN_SYMBOL, sizeof BL_PLUGIN_SYMBOL) == 0) {
                /* "ballast_plugin_v2", then a name of another stem */
                copy[i + (round == 0 ? strlen(BL_PLUGIN_SYMBOL) - 1 : 0)] = round == 0 ? '2' : 'x';
                found++;
            }
        }
        write_scratch(copy, good_size);
        assert_refused(scratch, 0,
                       round == 0 ? "exports ballast_plugin_v2 but not ballast_plugin_v1"
                                  : "does not export ballast_plugin_v1");
    }
    assert_true(found >= 2);
    free(copy);
}

static void every_cut_is_refused(void **state)
{
    struct bl_error err = BL_ERROR_INIT;
    (void)state;
    write_scratch(good, good_size);
    assert_int_equal(bl_plugin_precheck(scratch, 0, &err), 0);
    for (size_t k = 0; k < 64; k++) {
        write_scratch(good, good_size * k / 64);
        assert_int_equal(bl_plugin_precheck(scratch, 0, &err), -1);
        assert_int_equal(err.code, BL_EXIT_PLUGIN);
    }
    write_scratch(good, good_size - 1);
    assert_refused(scratch, 0, "cut");
}

/* x86-64 alone: without section headers _init is known by its instructions. A sanitizer's
 * constructor has its name only in a section. */
static void section_headers_are_not_needed(void **state)
{
    (void)state;
#if defined(__x86_64__) && !SANITIZED
    struct bl_error err = BL_ERROR_INIT;
    if (memmem(good, good_size, "gcov", 4) != NULL)
        skip(); /* so does coverage's */
    unsigned char *copy = malloc(good_size);
    Elf64_Ehdr h;
    assert_non_null(copy);
    memcpy(copy, good, good_size);
    memcpy(&h, copy, sizeof h);
    h.e_shoff = 0;
    h.e_shnum = 0;
    h.e_shstrndx = 0;
    memcpy(copy, &h, sizeof h);
    write_scratch(copy, good_size);
    free(copy);
    if (bl_plugin_precheck(scratch, 0, &err) != 0)
        fail_msg("%s", err.text);
#else
    skip();
#endif
}

/* ---- refused code -----------------------------------------------------------------------------*/

static void constructor_never_runs(void **state)
{
    const char *path = fixture("schedule_constructor.so");
    (void)state;
    unsetenv("BALLAST_FIXTURE_RAN");
    assert_refused(path, 0, "constructor 'before_main'");
    assert_null(getenv("BALLAST_FIXTURE_RAN"));
    /* The fixture does what it should, so the line above can fail. */
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(handle);
    assert_non_null(getenv("BALLAST_FIXTURE_RAN"));
    dlclose(handle);
    unsetenv("BALLAST_FIXTURE_RAN");
}

static void fast_math_is_refused(void **state)
{
#if defined(__x86_64__)
    struct bl_error err = BL_ERROR_INIT;
    (void)state;
    unsigned before = _mm_getcsr();
    /* gcc 13 and later leave crtfastmath.o out of shared objects: nothing is wrong then. */
    if (bl_plugin_precheck(fixture("schedule_fast.so"), 0, &err) != 0)
        assert_refused(fixture("schedule_fast.so"), 0, "-ffast-math");
    else
        print_message("this compiler's -ffast-math adds no constructor\n");
    assert_int_equal(_mm_getcsr() & 0xffc0, before & 0xffc0);
#else
    (void)state;
    skip();
#endif
}

/* What the file does not show is seen after dlopen, and put back. */
static void changed_float_mode_is_refused(void **state)
{
#if defined(__x86_64__)
    struct bl_error err = BL_ERROR_INIT;
    (void)state;
    unsigned before = _mm_getcsr();
    assert_int_equal(before & 0x8040, 0);
    assert_int_equal(bl_plugin_precheck(fixture("schedule_mode.so"), 0, &err), 0);
    assert_refused(fixture("schedule_mode.so"), 0, "changed the floating-point mode");
    assert_int_equal(_mm_getcsr() & 0xffc0, before & 0xffc0);
#else
    (void)state;
    skip();
#endif
}

static void refused_after_loading(void **state)
{
    (void)state;
    assert_refused(fixture("regularizer_undefined.so"), 0, "ballast_nobody_defines_this");
    assert_refused(fixture("regularizer_bad_options.so"), 0, "label");
    assert_refused(fixture("regularizer_bad_null.so"), 0, "'weight=0'");
    assert_refused(fixture("regularizer_bad_name.so"), 0, "\"Good Plugin\"");
    assert_refused(fixture("regularizer_no_load.so"), 0, "only one of save and load");
}

/* ---- fuzz -------------------------------------------------------------------------------------*/

static uint64_t fuzz_counter;

/* A file in memory: thousands of versions of it cost no disk. */
static int memory_file(char *path, size_t n)
{
    int fd = memfd_create("plugin", MFD_CLOEXEC);
    assert_true(fd >= 0);
    snprintf(path, n, "/proc/self/fd/%d", fd);
    return fd;
}

static void set_file(int fd, const void *bytes, size_t n)
{
    assert_int_equal(pwrite(fd, bytes, n, 0), n);
    assert_int_equal(ftruncate(fd, (off_t)n), 0);
}

static uint64_t below(uint64_t n)
{
    return bl_random(2024, 7, fuzz_counter++) % n;
}

/* Any bytes give an answer. Run under ASan and UBSan this is the test of elf.c's bounds. */
static void damaged_bytes_give_an_answer(void **state)
{
    unsigned char *copy = malloc(good_size);
    int accepted = 0, refused = 0;
    char path[64];
    int fd = memory_file(path, sizeof path);
    (void)state;
    assert_non_null(copy);
    for (int round = 0; round < 20000; round++) {
        struct bl_error err = BL_ERROR_INIT;
        size_t size = good_size;
        memcpy(copy, good, good_size);
        if (below(8) == 0)
            size = below(good_size) + 1;
        for (uint64_t k = below(8) + 1; k > 0; k--) {
            /* Half of the flips hit the headers, where the offsets are. */
            size_t at = below(below(2) == 0 && size > 1024 ? 1024 : size);
            copy[at] ^= (unsigned char)(1u << below(8));
            if (below(4) == 0)
                copy[at] = (unsigned char)(below(2) * 0xff);
        }
        set_file(fd, copy, size);
        int rc = bl_plugin_precheck(path, 0, &err);
        if (rc == 0)
            accepted++;
        else
            refused++;
        if (rc != 0 && err.text[0] == '\0')
            fail_msg("round %d: refused without a reason", round);
    }
    print_message("fuzz: %d accepted, %d refused\n", accepted, refused);
    assert_true(accepted > 0 && refused > 0);
    close(fd);
    free(copy);
}

/* Extreme values in every word of the headers, the dynamic segment and the hash table. */
static void extreme_values_give_an_answer(void **state)
{
    const uint64_t values[] = {0,          1,         0x7fffffff,    0xffffffff,       INT64_MAX,
                               UINT64_MAX, good_size, good_size - 1, UINT64_MAX - 4095};
    unsigned char *copy = malloc(good_size);
    Elf64_Ehdr h;
    char path[64];
    int fd = memory_file(path, sizeof path);
    (void)state;
    assert_non_null(copy);
    memcpy(&h, good, sizeof h);
    for (int part = 0; part < 1 + h.e_phnum; part++) {
        size_t begin = 0, end = sizeof h + h.e_phnum * sizeof(Elf64_Phdr);
        if (part > 0) {
            Elf64_Phdr p;
            memcpy(&p, good + h.e_phoff + (part - 1) * sizeof p, sizeof p);
            if (p.p_type != PT_DYNAMIC && p.p_type != PT_LOAD)
                continue;
            begin = p.p_offset;
            end = begin + (p.p_filesz < 1024 ? p.p_filesz : 1024);
        }
        for (size_t at = begin; at + 8 <= end; at += 4) {
            for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
                struct bl_error err = BL_ERROR_INIT;
                memcpy(copy, good, good_size);
                memcpy(copy + at, &values[v], 8);
                set_file(fd, copy, good_size);
                if (bl_plugin_precheck(path, 0, &err) != 0)
                    assert_true(err.text[0] != '\0');
            }
        }
    }
    close(fd);
    free(copy);
}

/* ---- search -----------------------------------------------------------------------------------*/

static void make(const char *sub, const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, sub);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/%s/%s", folder, sub, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
}

static void search_order(void **state)
{
    struct bl_error err = BL_ERROR_INIT;
    char first[400], second[600], expected[700];
    char *path = NULL;
    (void)state;
    make("first", "regularizer_aaa.so");
    make("second", "regularizer_aaa.so");
    make("second", "regularizer_z_loss.so");
    make("second", "monitor_gauge.so");
    snprintf(first, sizeof first, "%s/first", folder);
    snprintf(second, sizeof second, "%s/nowhere::%s/second", folder, folder);
    const char *paths[] = {first};
    const struct bl_strings config = {1, paths};
    setenv("BALLAST_PLUGIN_PATH", second, 1);

    assert_int_equal(bl_plugin_find(BL_KIND_REGULARIZER, "aaa", &config, &path, &err), 0);
    snprintf(expected, sizeof expected, "%s/regularizer_aaa.so", first);
    assert_string_equal(path, expected);
    free(path);
    assert_int_equal(bl_plugin_find(BL_KIND_REGULARIZER, "aaa", NULL, &path, &err), 0);
    snprintf(expected, sizeof expected, "%s/second/regularizer_aaa.so", folder);
    assert_string_equal(path, expected);
    free(path);
    /* A path is taken as it is, whatever it names. */
    assert_int_equal(bl_plugin_find(BL_KIND_SINK, "./x/y.so", &config, &path, &err), 0);
    assert_string_equal(path, "./x/y.so");
    free(path);
    path = NULL;

    assert_int_equal(bl_plugin_find(BL_KIND_REGULARIZER, "z_los", &config, &path, &err), -1);
    assert_int_equal(err.code, BL_EXIT_PLUGIN);
    assert_non_null(strstr(err.text, "did you mean 'z_loss'"));
    assert_non_null(strstr(err.text, first));
    assert_non_null(strstr(err.text, "/second"));
    assert_non_null(strstr(err.text, "regularizer_z_los.so"));
    assert_int_equal(bl_plugin_find(BL_KIND_REGULARIZER, "gauge", &config, &path, &err), -1);
    assert_non_null(strstr(err.text, "'gauge' is a monitor"));
    const char *bad[] = {"", "A", "a b", "..", "a.so", "\xff"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(bl_plugin_find(BL_KIND_SINK, bad[i], &config, &path, &err), -1);
        assert_int_equal(err.code, BL_EXIT_USAGE);
    }
    assert_null(path);
    unsetenv("BALLAST_PLUGIN_PATH");
}

static void kind_names(void **state)
{
    (void)state;
    for (uint32_t k = 1; k < BL_KIND_COUNT; k++)
        assert_int_equal(bl_kind_from_name(bl_kind_name(k)), k);
    assert_int_equal(bl_kind_from_name("regulariser"), 0);
    assert_int_equal(bl_kind_from_name(NULL), 0);
    assert_string_equal(bl_kind_name(BL_KIND_COUNT), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_plugin_loads),
        cmocka_unit_test(any_kind_and_symlink),
        cmocka_unit_test(other_good_plugins_load),
        cmocka_unit_test(wrong_descriptor),
        cmocka_unit_test(wrong_file),
        cmocka_unit_test(wrong_symbol),
        cmocka_unit_test(every_cut_is_refused),
        cmocka_unit_test(section_headers_are_not_needed),
        cmocka_unit_test(constructor_never_runs),
        cmocka_unit_test(fast_math_is_refused),
        cmocka_unit_test(changed_float_mode_is_refused),
        cmocka_unit_test(refused_after_loading),
        cmocka_unit_test(damaged_bytes_give_an_answer),
        cmocka_unit_test(extreme_values_give_an_answer),
        cmocka_unit_test(search_order),
        cmocka_unit_test(kind_names),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
