/* The random numbers are part of what a run is: known answers, uniformity, bijections. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/random.h"

/* Known answers of Philox4x32-10 as published with Random123: counter words, key words, output
 * words. Counter words 0, 1 are `counter`, 2, 3 are `stream`. */
static const struct {
    uint64_t counter, stream, key;
    uint32_t out[4];
} known[] = {
    {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {~0ull, ~0ull, ~0ull, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {0x85a308d3243f6a88,
     0x0370734413198a2e,
     0x299f31d0a4093822,
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

static void philox_known_answers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        uint64_t r = bl_random(known[i].key, known[i].stream, known[i].counter);
        assert_int_equal((uint32_t)r, known[i].out[0]);
        assert_int_equal((uint32_t)(r >> 32), known[i].out[1]);

        /* The other two words show in the normal variate: Box-Muller from the published words. */
        uint64_t second = (uint64_t)known[i].out[3] << 32 | known[i].out[2];
        double u = (double)(r >> 11) * 0x1p-53, v = (double)(second >> 11) * 0x1p-53;
        double want = sqrt(-2 * log(1 - u)) * cos(2 * acos(-1.0) * v);
        double got = bl_random_normal(known[i].key, known[i].stream, known[i].counter);
        /* |argument of cos| < 2 pi carries at most one rounding of 2^-50, |sqrt| < 9. */
        assert_true(fabs(got - want) < 9 * 0x1p-49);
    }
}

static void each_argument_matters(void **state)
{
    (void)state;
    uint64_t base = bl_random(1, 2, 3);
    assert_true(base == bl_random(1, 2, 3));
    for (int bit = 0; bit < 64; bit++) {
        uint64_t flip = 1ull << bit;
        assert_true(base != bl_random(1 ^ flip, 2, 3));
        assert_true(base != bl_random(1, 2 ^ flip, 3));
        assert_true(base != bl_random(1, 2, 3 ^ flip));
    }
}

/* n = 200,000 draws: the mean of the k-th power has standard error s / sqrt(n); 5 of them are
 * passed by chance less than once in a million. The seed is fixed, so a pass stays a pass. */
static void moments(void **state)
{
    (void)state;
    const int n = 200000;
    double u1 = 0, u2 = 0, g1 = 0, g2 = 0, g4 = 0;
    for (int i = 0; i < n; i++) {
        double u = bl_random_uniform(7, 1, (uint64_t)i), g = bl_random_normal(7, 2, (uint64_t)i);
        assert_true(u >= 0 && u < 1);
        assert_true(isfinite(g));
        u1 += u / n;
        u2 += u * u / n;
        g1 += g / n;
        g2 += g * g / n;
        g4 += g * g * g * g / n;
    }
    double e = 5 / sqrt(n);
    assert_true(fabs(u1 - 0.5) < e * sqrt(1.0 / 12));
    assert_true(fabs(u2 - 1.0 / 3) < e * sqrt(4.0 / 45));
    assert_true(fabs(g1) < e);
    assert_true(fabs(g2 - 1) < e * sqrt(2));
    assert_true(fabs(g4 - 3) < e * sqrt(96));
}

static void permute_is_a_bijection(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 7, 16, 17, 63, 64, 65, 1000, 4096, 4097, 5000};
    static unsigned char seen[5000];
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        for (uint64_t key = 0; key < 3; key++) {
            memset(seen, 0, sizeof seen);
            for (uint64_t i = 0; i < sizes[s]; i++) {
                uint64_t x = bl_permute(key * 77 + 5, sizes[s], i);
                assert_true(x < sizes[s]);
                assert_int_equal(seen[x], 0);
                seen[x] = 1;
            }
        }
    }
}

static void permute_reaches_large_domains(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1ull << 32, (1ull << 40) + 1, 1ull << 63, ~0ull};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (uint64_t i = 0; i < 100; i++) {
            uint64_t x = bl_permute(3, sizes[s], i), y = bl_permute(3, sizes[s], sizes[s] - 1 - i);
            assert_true(x < sizes[s] && y < sizes[s] && x != y);
        }
}

/* Over keys, index 0 and index n-1 land everywhere equally often: chi-square with n - 1 = 9
 * degrees of freedom; 37.3 is its 99.998% point (mean 9, variance 18), the seed is fixed. */
static void permute_is_fair(void **state)
{
    (void)state;
    const int n = 10, keys = 20000;
    int first[10] = {0}, last[10] = {0};
    for (int k = 0; k < keys; k++) {
        first[bl_permute((uint64_t)k, (uint64_t)n, 0)]++;
        last[bl_permute((uint64_t)k, (uint64_t)n, (uint64_t)n - 1)]++;
    }
    double a = 0, b = 0, want = (double)keys / n;
    for (int i = 0; i < n; i++) {
        a += (first[i] - want) * (first[i] - want) / want;
        b += (last[i] - want) * (last[i] - want) / want;
    }
    assert_true(a < 37.3);
    assert_true(b < 37.3);
}

static void hash_is_xxh64(void **state)
{
    (void)state;
    /* Published answers of XXH64 with seed 0. */
    assert_true(bl_hash("") == 0xEF46DB3751D8E999ull);
    assert_true(bl_hash("abc") == 0x44BC2CF5AD770999ull);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(each_argument_matters),
        cmocka_unit_test(moments),
        cmocka_unit_test(permute_is_a_bijection),
        cmocka_unit_test(permute_reaches_large_domains),
        cmocka_unit_test(permute_is_fair),
        cmocka_unit_test(hash_is_xxh64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
