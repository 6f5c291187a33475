/* Replicas' weights: who deviates, as a table; the hash for any threads; over processes. And the
 * rows of what processes measure each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rank_rows.h"
#include "replicas.h"

static const char *const hosts[8] = {"n0", "n0", "n1", "n1", "n2", "n2", "n3", "n3"};

static void judged(const char *letters, uint64_t equal, const char *const *words)
{
    uint64_t hashes[8];
    struct bl_error err = BL_ERROR_INIT;
    struct bl_replicas_when when = {400, equal};
    uint32_t n = (uint32_t)strlen(letters);
    for (uint32_t i = 0; i < n; i++)
        hashes[i] = 0xfeed0000u + (uint64_t)letters[i];
    int rc = bl_replicas_judge(hashes, hosts, n, &when, &err);
    assert_int_equal(rc, *words != NULL ? -1 : 0);
    if (*words != NULL)
        assert_int_equal(err.code, BL_EXIT_FAILED);
    for (; *words != NULL; words++)
        if (strstr(err.text, *words) == NULL)
            fail_msg("%s: \"%s\" is not in: %s", letters, *words, err.text);
    assert_null(strchr(err.text, '\n'));
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void test_judge(void **state)
{
    (void)state;
    judged("a", 0, WORDS(NULL));
    judged("aaaaaaaa", 300, WORDS(NULL));
    judged("aaaaabaa", 300,
           WORDS("step 400", "process 5 (n2) differ", "the other 7", "equal at step 300"));
    judged("baaa", 300, WORDS("process 0 (n0) differ", "the other 3"));
    judged("aab", 0, WORDS("process 2 (n1)", "no earlier step"));
    judged("abcaaaaa", 300, WORDS("processes 1 (n0), 2 (n1) differ", "the other 6"));
    judged("abcdeaaa", 300, WORDS("processes 1 (n0), 2 (n1), 3 (n1) and 1 more", "the other 4"));
    /* the largest set need not be more than a half */
    judged("abcaad", 300, WORDS("processes 1 (n0), 2 (n1), 5 (n2)", "the other 3"));
    judged("ab", 300, WORDS("process 0 (n0) and process 1 (n0) differ"));
    judged("aabb", 300, WORDS("process 0 (n0) and process 2 (n1) differ", "of 4"));
    judged("abbacc", 300, WORDS("process 0 (n0) and process 1 (n0) differ"));
    judged("abbb", 300, WORDS("process 0 (n0) differ", "the other 3"));
}

static void reversed(struct bl_backend *b, uint64_t n, void (*body)(void *, uint64_t),
                     void *argument)
{
    (void)b;
    while (n-- > 0)
        body(argument, n);
}

static void test_hash(void **state)
{
    (void)state;
    enum { N = 3 * 262144 + 5 };
    struct bl_backend_ops ops = {.parallel_for = reversed};
    struct bl_backend backend = {.ops = &ops};
    float *x = calloc(N, sizeof *x);
    uint64_t a, b, c;
    assert_non_null(x);
    for (int i = 0; i < N; i++)
        x[i] = (float)i * 0.37f;
    assert_int_equal(bl_replicas_hash(NULL, x, N, &a, NULL), 0);
    assert_int_equal(bl_replicas_hash(&backend, x, N, &b, NULL), 0);
    assert_true(a == b);
    static const int flips[] = {0, 262143, 262144, N - 1};
    for (size_t i = 0; i < sizeof flips / sizeof *flips; i++) {
        uint32_t bits;
        memcpy(&bits, &x[flips[i]], sizeof bits);
        bits ^= 1; /* the lowest bit of one weight */
        memcpy(&x[flips[i]], &bits, sizeof bits);
        assert_int_equal(bl_replicas_hash(NULL, x, N, &c, NULL), 0);
        assert_true(a != c);
        a = c;
    }
    assert_int_equal(bl_replicas_hash(NULL, x, 0, &c, NULL), 0);
    free(x);
}

/* ---- rows over processes --------------------------------------------------------------------- */

struct emitted {
    char names[16][64];
    double values[16];
    size_t count;
};

static void emit(void *context, const char *name, double value)
{
    struct emitted *e = context;
    assert_true(e->count < 16);
    snprintf(e->names[e->count], sizeof e->names[0], "%s", name);
    e->values[e->count++] = value;
}

static double emitted(const struct emitted *e, const char *name)
{
    for (size_t i = 0; i < e->count; i++)
        if (strcmp(e->names[i], name) == 0)
            return e->values[i];
    fail_msg("%s was not emitted", name);
    return NAN;
}

static void test_rows(void **state)
{
    (void)state;
    /* four ranks, two to a process */
    static const double loss[] = {3.0, 2.0, 5.0, 2.5}, norm[] = {1.0, 8.0, NAN, 2.0},
                        seconds[] = {0.5, 0.5}, wait[] = {0.25, 0.0};
    static const struct bl_rank_columns values = {loss, norm, seconds, wait},
                                        one = {loss + 1, norm + 1, seconds + 1, wait + 1};
    static const struct {
        const char *name;
        double value;
    } wanted[] = {{"rank/loss/min", 2.0},
                  {"rank/loss/median", 2.75},
                  {"rank/loss/max", 5.0},
                  {"rank/loss/argmax", 2.0},
                  {"rank/grad_norm/min", 1.0},
                  {"rank/grad_norm/median", 5.0},
                  {"rank/grad_norm/argmax", 2.0},
                  {"rank/step_seconds/max", 0.5},
                  {"rank/step_seconds/argmax", 0},
                  {"rank/wait_seconds/min", 0.0},
                  {"rank/wait_seconds/median", .125}};
    struct emitted e = {.count = 0};
    struct bl_rank_rows *r;
    struct bl_straggler late;
    assert_int_equal(bl_rank_rows_make(4, 2, &r, NULL), 0);
    assert_int_equal(bl_rank_rows_add(r, &values, emit, &e, &late), 0);
    assert_int_equal(e.count, 16);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (emitted(&e, wanted[i].name) != wanted[i].value)
            fail_msg("%s is %g, not %g", wanted[i].name, emitted(&e, wanted[i].name),
                     wanted[i].value);
    assert_true(isnan(emitted(&e, "rank/grad_norm/max")));
    bl_rank_rows_free(r);

    e.count = 0;
    assert_int_equal(bl_rank_rows_make(1, 1, &r, NULL), 0);
    assert_int_equal(bl_rank_rows_add(r, &one, emit, &e, &late), 0);
    assert_true(emitted(&e, "rank/loss/min") == 2.0 && emitted(&e, "rank/loss/max") == 2.0);
    assert_true(emitted(&e, "rank/loss/median") == 2.0 && emitted(&e, "rank/loss/argmax") == 0.0);
    bl_rank_rows_free(r);
    bl_rank_rows_free(NULL);
}

/* One step of three processes; `own` is the third's work. */
static int step(struct bl_rank_rows *r, double own, struct bl_straggler *late)
{
    struct emitted e = {.count = 0};
    const double ones[3] = {1, 1, 1}, seconds[3] = {0.2, 0.25, own};
    const struct bl_rank_columns values = {ones, ones, seconds, ones};
    return bl_rank_rows_add(r, &values, emit, &e, late);
}

static void test_straggler(void **state)
{
    (void)state;
    struct bl_rank_rows *r;
    struct bl_straggler late = {0};
    assert_int_equal(bl_rank_rows_make(3, 3, &r, NULL), 0);
    for (int i = 1; i < BL_LATE_STEPS; i++)
        assert_int_equal(step(r, 0.75, &late), 0);
    assert_int_equal(step(r, 0.5, &late), 0); /* twice the median is not more than twice: anew */
    for (int i = 1; i < BL_LATE_STEPS; i++)
        assert_int_equal(step(r, 0.75, &late), 0);
    assert_int_equal(step(r, 0.75, &late), 1);
    assert_int_equal(late.process, 2);
    assert_true(late.seconds == 0.75 && late.median == 0.25);
    for (int i = 1; i < BL_LATE_STEPS; i++)
        assert_int_equal(step(r, 0.75, &late), 0);
    assert_int_equal(step(r, 0.75, &late), 1);
    bl_rank_rows_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_judge), cmocka_unit_test(test_hash),
                                       cmocka_unit_test(test_rows),
                                       cmocka_unit_test(test_straggler)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
