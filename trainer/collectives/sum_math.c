#include "collectives/sum_math.h"

#include <string.h>

#include "base/bf16.h"
#include "base/fp16.h"
#include "base/random.h"

enum { LINE = 2048 /* numbers that several passes run over while they are in the first cache */ };

static const uint32_t last_hop = (1u << 20) - 1; /* of the division after the sum */

static uint32_t predivisor(uint32_t ranks)
{
    uint32_t f = 1;
    while (ranks % f == 0 && ranks / f > f)
        f *= 2;
    return f;
}

static void round_nearest(uint32_t dtype, uint64_t n, float *x)
{
    if (dtype == BL_BF16)
        for (uint64_t i = 0; i < n; i++)
            x[i] = bl_bf16_nearest(x[i]);
    else if (dtype == BL_FP16)
        for (uint64_t i = 0; i < n; i++)
            x[i] = bl_fp16_nearest(x[i]);
}

/* Four numbers share a draw: 16 bits each. */
static void round_stochastic(uint32_t dtype, uint64_t n, const struct bl_sum_random *random,
                             uint32_t hop, float *x)
{
    uint64_t stream = random->step << 20 | hop, bits = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t element = random->element + i;
        if (i == 0 || element % 4 == 0)
            bits = bl_random(random->seed, stream, element / 4);
        uint32_t draw = (uint32_t)(bits >> (element % 4 * 16)) & 0xffffu;
        x[i] = dtype == BL_BF16 ? bl_bf16_stochastic(x[i], draw) : bl_fp16_stochastic(x[i], draw);
    }
}

static void round_sum(const struct bl_sum_rule *rule, uint64_t n,
                      const struct bl_sum_random *random, uint32_t hop, float *x)
{
    if (rule->stochastic && rule->sum != BL_FP32)
        round_stochastic(rule->sum, n, random, hop, x);
    else
        round_nearest(rule->sum, n, x);
}

void bl_sum_rule_make(const struct bl_sum_format *format, uint32_t ranks, struct bl_sum_rule *out)
{
    float w = (float)ranks, inverse = 1.0f / w;
    *out = (struct bl_sum_rule){
        .wire = format->wire,
        .sum = format->sum,
        .stochastic = format->sum_rounding == BL_ROUND_STOCHASTIC,
        .multiply = 1,
        .divide = 1,
        .divide_last = 1,
    };
    switch (format->average) {
    case BL_AVERAGE_DIVIDE_FIRST:
        out->divide = w;
        break;
    case BL_AVERAGE_PREMULTIPLY:
        round_nearest(format->wire, 1, &inverse);
        out->multiply = inverse;
        break;
    case BL_AVERAGE_PREDIVIDE:
        out->divide = (float)predivisor(ranks);
        out->divide_last = w / out->divide; /* 1.5 for W = 3 */
        break;
    default:
        out->divide_last = w;
        break;
    }
}

void bl_sum_scale(const struct bl_sum_rule *rule, uint64_t n, const float *gradient, float *x)
{
    for (uint64_t begin = 0; begin < n; begin += LINE) {
        uint64_t count = n - begin < LINE ? n - begin : LINE;
        float *y = x + begin;
        memcpy(y, gradient + begin, count * sizeof *y);
        round_nearest(rule->wire, count, y);
        if (rule->multiply != 1)
            for (uint64_t i = 0; i < count; i++)
                y[i] *= rule->multiply;
        else if (rule->divide != 1)
            for (uint64_t i = 0; i < count; i++)
                y[i] /= rule->divide;
        else
            continue;
        round_nearest(rule->wire, count, y);
    }
}

/* `a` has what `top` was before x was added. */
static void count_lost(uint64_t n, const float *a, const float *x, const float *top,
                       uint64_t lost[2])
{
    uint64_t addends = 0, unchanged = 0;
    for (uint64_t i = 0; i < n; i++) {
        addends += x[i] != 0;
        unchanged += x[i] != 0 && a[i] == top[i];
    }
    lost[0] += addends;
    lost[1] += unchanged;
}

void bl_sum_step(const struct bl_sum_rule *rule, uint64_t n, int set, uint32_t rounding,
                 const struct bl_sum_random *random, uint32_t hop, const float *x, float *top,
                 uint64_t lost[2])
{
    float before[LINE];
    struct bl_sum_random at = *random;
    for (uint64_t begin = 0; begin < n; begin += LINE) {
        uint64_t count = n - begin < LINE ? n - begin : LINE;
        float *a = top + begin;
        const float *b = x + begin;
        if (lost != NULL && !set)
            memcpy(before, a, count * sizeof *a);
        if (set)
            memmove(a, b, count * sizeof *a);
        else
            for (uint64_t i = 0; i < count; i++)
                a[i] = a[i] + b[i];
        at.element = random->element + begin;
        if (rounding != BL_ORDER_EXACT)
            round_sum(rule, count, &at, hop, a);
        if (rounding == BL_ORDER_WIRE && rule->wire != rule->sum)
            round_nearest(rule->wire, count, a);
        if (lost != NULL && !set)
            count_lost(count, before, b, a, lost);
    }
}

void bl_sum_close(const struct bl_sum_rule *rule, uint64_t n, float *a)
{
    round_nearest(rule->wire, n, a);
}

void bl_sum_finish(const struct bl_sum_rule *rule, uint64_t n, const struct bl_sum_random *random,
                   const float *a, float *out)
{
    if (out != a)
        memcpy(out, a, n * sizeof *out);
    if (rule->divide_last == 1)
        return;
    for (uint64_t i = 0; i < n; i++)
        out[i] /= rule->divide_last;
    round_sum(rule, n, random, last_hop, out);
}

size_t bl_sum_width(uint32_t dtype)
{
    return dtype == BL_FP32 ? 4 : 2;
}

void bl_sum_pack(uint32_t dtype, uint64_t n, const float *x, void *packed)
{
    uint16_t *half = packed;
    if (dtype == BL_BF16)
        for (uint64_t i = 0; i < n; i++)
            half[i] = (uint16_t)(bl_fp32_bits(x[i]) >> 16);
    else if (dtype == BL_FP16)
        for (uint64_t i = 0; i < n; i++)
            half[i] = bl_fp16_pack(x[i]);
    else
        memcpy(packed, x, n * sizeof *x);
}

void bl_sum_unpack(uint32_t dtype, uint64_t n, const void *packed, float *x)
{
    const uint16_t *half = packed;
    if (dtype == BL_BF16)
        for (uint64_t i = 0; i < n; i++)
            x[i] = bl_fp32_of((uint32_t)half[i] << 16);
    else if (dtype == BL_FP16)
        for (uint64_t i = 0; i < n; i++)
            x[i] = bl_fp16_unpack(half[i]);
    else
        memcpy(x, packed, n * sizeof *x);
}
