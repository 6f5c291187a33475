/* fp16 in fp32 storage: every value, every gap between two neighbours. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#include "base/fp16.h"

enum { INFINITE = 0x7c00, VALUES = 0x8000 };

/* The number that 15 bits stand for, by the definition of the format. */
static float value(uint32_t bits)
{
    int exponent = (int)(bits >> 10), fraction = (int)(bits & 0x3ff);
    if (exponent == 31)
        return fraction == 0 ? INFINITY : NAN;
    return exponent == 0 ? ldexpf((float)fraction, -24)
                         : ldexpf((float)(1024 + fraction), exponent - 25);
}

static void test_every_value(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 2 * VALUES; bits++) {
        float x = bl_fp16_unpack((uint16_t)bits), want = value(bits % VALUES);
        if (isnan(want)) {
            assert_true(isnan(x) && isnan(bl_fp16_nearest(x)) &&
                        isnan(bl_fp16_stochastic(x, 65535)));
            assert_int_equal(bl_fp16_pack(x), bits);
            continue;
        }
        assert_true(fabsf(x) == want && (signbit(x) != 0) == (bits >= VALUES));
        assert_int_equal(bl_fp16_pack(x), bits);
        assert_int_equal(bl_fp16_pack(bl_fp16_nearest(x)), bits);
        assert_int_equal(bl_fp16_pack(bl_fp16_stochastic(x, 0)), bits);
        assert_int_equal(bl_fp16_pack(bl_fp16_stochastic(x, 65535)), bits);
    }
    assert_true(isnan(bl_fp16_nearest(bl_fp32_of(0x7f800001u)))); /* not to infinity */
}

static void expect_nearest(float x, float want)
{
    assert_true(bl_fp16_nearest(x) == want);
    assert_true(bl_fp16_nearest(-x) == -want);
}

/* All that lies between two neighbours goes to the nearer one, the middle to the even one; above
 * 65504 the next is 65536, which is infinity. */
static void test_nearest(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < INFINITE; bits++) {
        float low = value(bits), high = bits + 1 < INFINITE ? value(bits + 1) : 65536.0f;
        float middle = low + (high - low) / 2, up = high == 65536.0f ? INFINITY : high;
        expect_nearest(middle, bits % 2 == 0 ? low : up);
        expect_nearest(nextafterf(middle, 0), low);
        expect_nearest(nextafterf(middle, INFINITY), up);
        expect_nearest(nextafterf(low, INFINITY), low);
        expect_nearest(nextafterf(high, 0), up);
    }
    expect_nearest(3e38f, INFINITY);
    expect_nearest(1e-45f, 0);
    assert_true(signbit(bl_fp16_nearest(-1e-45f)));
}

/* Of all 65536 draws, as many go up as the distance says. */
static void test_stochastic(void **state)
{
    (void)state;
    static const uint32_t some[] = {0, 1, 2, 1000, 0x3fe, 0x3ff, 0x400, 0x401, 0x3c00, 0x7bfe};
    for (size_t k = 0; k < sizeof some / sizeof *some; k++)
        for (int eighth = 0; eighth < 8; eighth++) {
            float low = value(some[k]), high = value(some[k] + 1);
            float x = low + (high - low) * (float)eighth / 8;
            int ups = 0;
            for (uint32_t draw = 0; draw < 65536; draw++) {
                float y = bl_fp16_stochastic(-x, draw);
                assert_true(y == -low || y == -high);
                ups += y == -high;
            }
            assert_int_equal(ups, 8192 * eighth);
        }
    assert_true(isinf(bl_fp16_stochastic(65520.0f, 65535)));
    assert_true(bl_fp16_stochastic(65520.0f, 0) == 65504.0f);
    assert_true(isinf(bl_fp16_stochastic(1e30f, 0)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_value),
                                       cmocka_unit_test(test_nearest),
                                       cmocka_unit_test(test_stochastic)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
