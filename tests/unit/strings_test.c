/* base/: strings, files, errors, memory, the log. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/strings.h"

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/ballast-strings-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) == 0 ? 0 : -1;
}

static const char *in_folder(const char *name)
{
    static char path[2][256];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static void double_text(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } rows[] = {
        {0.0, "0.0"},
        {-0.0, "-0.0"},
        {1.0, "1.0"},
        {0.1, "0.1"},
        {3e-4, "0.0003"},
        {1e-5, "1e-5"},
        {1e22, "1e22"},
        {-2.5, "-2.5"},
        {10000, "10000.0"},
        {1.0 / 3, "0.3333333333333333"},
        {0.1 + 0.2, "0.30000000000000004"},
        {5e-324, "5e-324"},
        {1.7976931348623157e308, "1.7976931348623157e308"},
        {INFINITY, "inf"},
        {-INFINITY, "-inf"},
        {NAN, "nan"},
        {123456789012345680.0, "1.2345678901234568e17"},
    };
    char buffer[32];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_string_equal(bl_double_text(rows[i].value, buffer), rows[i].text);

    for (uint64_t i = 0; i < 100000; i++) { /* every bit pattern reads back to itself */
        uint64_t bits = bl_random(11, 0, i);
        double value, back;
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value))
            continue;
        const char *text = bl_double_text(value, buffer);
        assert_true(strlen(text) < sizeof buffer);
        assert_int_equal(bl_parse_double(text, &back), 0);
        assert_memory_equal(&value, &back, sizeof value);
        assert_true(strpbrk(text, ".e") != NULL);
    }
}

static void parse_numbers(void **state)
{
    (void)state;
    double d = 7;
    int64_t n = 7;
    assert_int_equal(bl_parse_double("1.5e3", &d), 0);
    assert_true(d == 1500);
    assert_int_equal(bl_parse_double("-inf", &d), 0);
    assert_true(isinf(d));
    static const char *const bad[] = {"", " 1", "1 ", "1,5", "x", "1.5x", "1e999", "-", "."};
    d = 7;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(bl_parse_double(bad[i], &d), -1);
    assert_true(d == 7); /* outputs are set on success only */

    assert_int_equal(bl_parse_int("9223372036854775807", &n), 0);
    assert_true(n == INT64_MAX);
    assert_int_equal(bl_parse_int("-9223372036854775808", &n), 0);
    assert_true(n == INT64_MIN);
    assert_int_equal(bl_parse_int("0x10", &n), 0);
    assert_int_equal(n, 16);
    assert_int_equal(bl_parse_int("010", &n), 0);
    assert_int_equal(n, 10);
    static const char *const no_int[] = {"", "9223372036854775808", "1.0", "1 ", " 1", "0x", "-"};
    for (size_t i = 0; i < sizeof no_int / sizeof no_int[0]; i++)
        assert_int_equal(bl_parse_int(no_int[i], &n), -1);
    assert_int_equal(n, 10);
}

static void locale_does_not_matter(void **state)
{
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "de_DE", "fr_FR.UTF-8"};
    char buffer[32], plain[32];
    double d;
    size_t i = 0;
    while (i < 4 && !setlocale(LC_ALL, names[i]))
        i++;
    snprintf(plain, sizeof plain, "%.1f", 0.5);
    if (i == 4 || strcmp(plain, "0,5") != 0) {
        setlocale(LC_ALL, "C");
        print_message("skipped: no locale with a decimal comma is installed\n");
        skip();
    }
    assert_string_equal(bl_double_text(0.5, buffer), "0.5");
    assert_int_equal(bl_parse_double("0.5", &d), 0);
    assert_true(d == 0.5);
    assert_int_equal(bl_parse_double("0,5", &d), -1);
    assert_string_equal(bl_human(1234.0, buffer), "1.23k");
    setlocale(LC_ALL, "C");
}

static void nearest(void **state)
{
    (void)state;
    static const char *const keys[] = {"plugin", "lr", "betas", "eps", "weight_decay", NULL};
    assert_string_equal(bl_nearest("beta", keys), "betas");
    assert_string_equal(bl_nearest("pluign", keys), "plugin");
    assert_string_equal(bl_nearest("Weight_Decay", keys), "weight_decay");
    assert_string_equal(bl_nearest("weightdecay", keys), "weight_decay");
    assert_string_equal(bl_nearest("learning_rat", keys), "lr");
    assert_string_equal(bl_nearest("wd", keys), "weight_decay");
    assert_string_equal(bl_nearest("weight", keys), "weight_decay");
    assert_null(bl_nearest("zzzzzzzz", keys));
    assert_null(bl_nearest("momentum", keys));
    assert_null(bl_nearest("x", (const char *const[]){NULL}));
    char longer[300];
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_null(bl_nearest(longer, keys));
}

static void human(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } rows[] = {{0, "0"},
                {7, "7"},
                {999, "999"},
                {1000, "1.00k"},
                {12300000, "12.3M"},
                {4.56e9, "4.56G"},
                {999999, "1.00M"},
                {99960, "100k"},
                {-12300, "-12.3k"},
                {0.25, "0.25"},
                {1e18, "1.00E"}};
    char buffer[32];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_string_equal(bl_human(rows[i].value, buffer), rows[i].text);
    bl_human(1e300, buffer);
    assert_true(strlen(buffer) < 32);
}

static void text_grows(void **state)
{
    (void)state;
    struct bl_text t = {0};
    for (int i = 0; i < 1000; i++)
        bl_text_add(&t, "%d,", i);
    assert_int_equal(t.failed, 0);
    assert_int_equal(t.length, 10 * 2 + 90 * 3 + 900 * 4);
    assert_int_equal(strlen(t.text), t.length);
    assert_int_equal(strncmp(t.text, "0,1,2,", 6), 0);
    bl_text_free(&t);
    bl_text_free(NULL);
    assert_null(t.text);
}

static void errors_are_one_line(void **state)
{
    (void)state;
    struct bl_error err = BL_ERROR_INIT;
    errno = ENOENT;
    assert_int_equal(bl_error_set(&err, BL_EXIT_DATA, "a\nb\033[2J%s", "c"), -1);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(err.code, BL_EXIT_DATA);
    assert_string_equal(err.text, "a b?[2Jc");
    assert_int_equal(bl_error_prefix(&err, "%s:%d", "f", 3), -1);
    assert_string_equal(err.text, "f:3: a b?[2Jc");
    bl_error_set(&err, BL_EXIT_FAILED, "again: %s", err.text); /* an argument inside the target */
    assert_string_equal(err.text, "again: f:3: a b?[2Jc");
    assert_int_equal(bl_error_set(NULL, 1, "x"), -1);
    assert_int_equal(bl_error_prefix(NULL, "x"), -1);

    char longer[3000];
    memset(longer, 'y', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    bl_error_set(&err, 1, "%s", longer);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    bl_error_prefix(&err, "%s", longer);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
}

static void memory(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4096, (size_t)5 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        unsigned char *p = bl_alloc(sizes[i], 1);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        for (size_t k = 0; k < sizes[i]; k++)
            assert_int_equal(p[k], 0);
        memset(p, 0xff, sizes[i]);
        bl_free(p);
    }
    assert_null(bl_alloc(SIZE_MAX, 2));
    assert_null(bl_alloc(SIZE_MAX / 2, 2));
    assert_null(bl_alloc(SIZE_MAX, 1));
    bl_free(NULL);
    assert_true(bl_memory_peak() > (uint64_t)5 << 20);
    /* What nobody touches costs nothing: `ballast check` makes the arenas of any model. A sanitizer
     * marks an eighth of it. */
    uint64_t peak = bl_memory_peak();
    void *unused = bl_alloc((size_t)1 << 30, 1);
    assert_non_null(unused);
    assert_true(bl_memory_peak() - peak < (uint64_t)1 << 28);
    bl_free(unused);
    double before = bl_clock();
    assert_true(bl_clock() >= before);
    assert_true(bl_clock_wall() > 1.5e9);
}

static void files(void **state)
{
    (void)state;
    struct bl_error err = BL_ERROR_INIT;
    char *text = NULL;
    size_t n = 77;
    assert_int_equal(bl_make_directories(in_folder("a/b//c/"), &err), 0);
    assert_int_equal(bl_make_directories(in_folder("a/b/c"), &err), 0);
    assert_int_equal(bl_write_file(in_folder("a/f"), "x\0y", 3, &err), 0);
    assert_int_equal(bl_write_file(in_folder("a/f"), "hello", 5, &err), 0);
    assert_int_equal(bl_read_file(in_folder("a/f"), 5, &text, &n, &err), 0);
    assert_int_equal(n, 5);
    assert_string_equal(text, "hello");
    free(text);
    text = NULL;

    assert_int_equal(bl_read_file(in_folder("a/f"), 4, &text, &n, &err), -1);
    assert_non_null(strstr(err.text, "larger than 4 bytes"));
    assert_int_equal(bl_read_file(in_folder("a"), 100, &text, &n, &err), -1);
    assert_non_null(strstr(err.text, "a folder"));
    assert_int_equal(bl_read_file(in_folder("none"), 100, &text, &n, &err), -1);
    assert_non_null(strstr(err.text, "No such file"));
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    assert_int_equal(bl_read_file(in_folder("pipe"), 100, &text, &n, &err), -1);
    assert_null(text);

    assert_int_equal(bl_make_directories(in_folder("a/f/g"), &err), -1);
    assert_non_null(strstr(err.text, in_folder("a/f")));
    assert_int_equal(bl_make_directories("", &err), -1);
    assert_int_equal(bl_write_file(in_folder("none/f"), "x", 1, &err), -1);
    /* A write that fails leaves the old file and no temporary behind. */
    assert_int_equal(bl_write_file(in_folder("a/b"), "x", 1, &err), -1);
    char command[256];
    snprintf(command, sizeof command, "test -z \"$(find '%s' -name '*.tmp*')\"", folder);
    assert_int_equal(system(command), 0);
    assert_int_equal(bl_read_file("/proc/self/status", 1 << 20, &text, &n, &err), 0);
    assert_int_equal(strlen(text), n); /* a file whose size says 0 */
    free(text);
}

/* Runs body with stderr going to a file (or the terminal `to`); the text of the file. */
static char *capture(void (*body)(void))
{
    char *text = NULL;
    size_t n;
    fflush(stderr);
    int saved = dup(STDERR_FILENO);
    int fd = open(in_folder("stderr"), O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0600);
    dup2(fd, STDERR_FILENO);
    body();
    dup2(saved, STDERR_FILENO);
    close(fd);
    close(saved);
    assert_int_equal(bl_read_file(in_folder("stderr"), 10 << 20, &text, &n, NULL), 0);
    return text;
}

static void log_who(int level, const char *who, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    bl_logv(level, who, format, args);
    va_end(args);
}

static void some_lines(void)
{
    bl_log_progress("step 1"); /* not a terminal: draws nothing */
    bl_log(BL_LOG_INFO, "steps %d", 3);
    bl_log(BL_LOG_WARNING, "two\nlines \033[0m");
    bl_log(BL_LOG_DEBUG, "not shown");
    log_who(BL_LOG_ERROR, "z_loss", "bad %s", "value");
    bl_log_level(BL_LOG_ERROR);
    bl_log(BL_LOG_WARNING, "not shown either");
    bl_log_level(BL_LOG_DEBUG);
    log_who(BL_LOG_DEBUG, "norms", "seen");
    bl_log_level(BL_LOG_INFO);
    bl_log_progress("");
}

static void log_lines(void **state)
{
    (void)state;
    assert_int_equal(bl_log_file(in_folder("no/such/log.txt")), -1);
    assert_int_equal(bl_log_file(in_folder("log.txt")), 0);
    char *text = capture(some_lines), *copy = NULL;
    size_t n;
    assert_string_equal(text, "steps 3\nballast: warning: two lines ?[0m\n"
                              "ballast: error: z_loss: bad value\nballast: debug: norms: seen\n");
    assert_int_equal(bl_log_file(NULL), 0);
    assert_int_equal(bl_read_file(in_folder("log.txt"), 1 << 20, &copy, &n, NULL), 0);
    int year, lines = 0;
    char zone, level[16];
    for (char *line = strtok(copy, "\n"); line; line = strtok(NULL, "\n"), lines++)
        assert_int_equal(
            sscanf(line, "%4d-%*2d-%*2dT%*2d:%*2d:%*2d.%*3d%c %15s", &year, &zone, level), 3);
    assert_int_equal(lines, 4);
    assert_string_equal(level, "debug");
    assert_int_equal(zone, 'Z');
    free(text);
    free(copy);
}

static void *writer(void *argument)
{
    const char *letter = argument;
    char word[200];
    memset(word, *letter, sizeof word - 1);
    word[sizeof word - 1] = '\0';
    for (int i = 0; i < 200; i++)
        bl_log(BL_LOG_INFO, "%s", word);
    return NULL;
}

static void many_writers(void)
{
    pthread_t thread[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, writer, (void *)&"abcd"[i]), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
}

static void log_lines_do_not_mix(void **state)
{
    (void)state;
    char *text = capture(many_writers);
    int lines = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), lines++) {
        assert_int_equal(strlen(line), 199);
        assert_int_equal(strspn(line, (char[]){line[0], '\0'}), 199);
    }
    assert_int_equal(lines, 800);
    free(text);
}

static void progress_on_a_terminal(void **state)
{
    (void)state;
    int master = posix_openpt(O_RDWR | O_NOCTTY), slave = -1;
    if (master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0)
        slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    if (slave < 0) {
        print_message("skipped: no pseudo terminals here\n");
        if (master >= 0)
            close(master);
        skip();
    }
    setenv("TERM", "xterm", 1);
    fflush(stderr);
    int saved = dup(STDERR_FILENO);
    dup2(slave, STDERR_FILENO);
    bl_log_progress("step 1");
    bl_log(BL_LOG_INFO, "a line");
    bl_log_progress("");
    bl_log(BL_LOG_INFO, "after");
    dup2(saved, STDERR_FILENO);
    close(saved);
    /* The terminal turns \n into \r\n. */
    static const char want[] = "\r\033[Kstep 1\r\033[Ka line\r\n\r\033[Kstep 1\r\033[Kafter\r\n";
    char text[512];
    size_t n = 0;
    struct pollfd ready = {master, POLLIN, 0};
    while (n < sizeof want - 1 && poll(&ready, 1, 10000) == 1) {
        ssize_t got = read(master, text + n, sizeof text - 1 - n);
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    text[n] = '\0';
    assert_string_equal(text, want);
    close(slave);
    close(master);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(double_text),
        cmocka_unit_test(parse_numbers),
        cmocka_unit_test(locale_does_not_matter),
        cmocka_unit_test(nearest),
        cmocka_unit_test(human),
        cmocka_unit_test(text_grows),
        cmocka_unit_test(errors_are_one_line),
        cmocka_unit_test(memory),
        cmocka_unit_test(files),
        cmocka_unit_test(log_lines),
        cmocka_unit_test(log_lines_do_not_mix),
        cmocka_unit_test(progress_on_a_terminal),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
