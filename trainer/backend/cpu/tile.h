/* Small matrix products of attention, and the exp of numbers that are not positive.
 *
 * A tile is BL_TILE_ROWS x 2 vectors of C kept in registers while k runs. Every product of
 * attention is written so that the operand B is row-major along the lanes and A is only read one
 * scalar at a time, so neither keys nor values are ever transposed:
 *   s^T (keys, queries)  = k q^T      a = k rows,      b = q^T (packed once per query block)
 *   out (queries, D)    += p v        a = p^T columns, b = v rows
 * and the same pairs in the backward pass. The causal half is cut off per group of rows by
 * `low` and `high`, so that a diagonal block costs little more than half of a full one.
 */
#ifndef BL_BACKEND_CPU_TILE_H
#define BL_BACKEND_CPU_TILE_H

#include "backend/cpu/vector.h"

#if defined(__GNUC__) && !defined(__clang__)
#define BL_TILE_UNROLL _Pragma("GCC unroll 8")
#else
#define BL_TILE_UNROLL
#endif

#define BL_TILE_ROWS 6
#define BL_TILE_FULL ((int64_t)1 << 40) /* `high`, and minus it `low`, that cut nothing */

/* exp(x) for x up to 88: results below 2^-126 or so become 0, exactly 0 at -inf. NaN through. One
 * clamp and one power of two instead of the two of bl_v_exp; same polynomial, same accuracy. */
BL_V_INLINE bl_vf bl_v_exp_low(bl_vf x)
{
    bl_vf t, n, r, p;
    bl_vu k;

    x = bl_v_max(bl_v_set(-88.0f), x); /* a NaN is the second operand and stays */
    t = bl_v_fma(x, bl_v_set(1.44269504f), bl_v_set(12582912.0f));
    k = (bl_vu)t - (0x4b400000u - 127u); /* -88 has exponent field 0: the factor is 0 */
    n = t - bl_v_set(12582912.0f);
    r = bl_v_fma(n, bl_v_set(-0.693359375f), x);
    r = bl_v_fma(n, bl_v_set(2.12194440e-4f), r);
    p = bl_v_set(0.001395023930f);
    p = bl_v_fma(p, r, bl_v_set(0.008368783867f));
    p = bl_v_fma(p, r, bl_v_set(0.04166621111f));
    p = bl_v_fma(p, r, bl_v_set(0.1666652005f));
    p = bl_v_fma(p, r, bl_v_set(0.5000000092f));
    p = bl_v_fma(p * r, r, r) + bl_v_set(1.0f);
    return p * (bl_vf)(k << 23);
}

#define BL_ATTENTION_BLOCK 64 /* queries and keys of a block; a multiple of 2 BL_LANES */

BL_V_INLINE uint64_t bl_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* x rounded up to whole vectors. */
BL_V_INLINE uint64_t bl_v_whole(uint64_t x)
{
    return (x + BL_LANES - 1) / BL_LANES * BL_LANES;
}

BL_V_INLINE bl_vi bl_v_lane_numbers(void)
{
    bl_vi v = {0};
    for (int i = 0; i < BL_LANES; i++)
        v[i] = i;
    return v;
}

struct bl_tiles {
    uint64_t rows, columns, depth; /* columns is a multiple of BL_LANES */
    const float *a;                /* element (i, k) at i * a_row + k * a_depth */
    uint64_t a_row, a_depth;
    const float *b; /* (depth, columns) */
    uint64_t b_row;
    float *c; /* (rows, columns) */
    uint64_t c_row;
    int add;                /* 0 writes c, 1 adds to it */
    const float *row_scale; /* with add: c is first multiplied by it, one per row; may be NULL */
    int64_t low, high;      /* rows [i, i + m) use k in [i + low, i + m + high) only */
};

BL_V_INLINE void bl_tile(const struct bl_tiles *t, const int rows, const int vectors, uint64_t row,
                         uint64_t column)
{
    int64_t first = (int64_t)row + t->low, last = (int64_t)row + rows + t->high;
    uint64_t begin = first < 0 ? 0 : (uint64_t)first;
    uint64_t end = last < 0 ? 0 : (uint64_t)last < t->depth ? (uint64_t)last : t->depth;
    const float *a = t->a + row * t->a_row + begin * t->a_depth;
    const float *b = t->b + begin * t->b_row + column;
    float *c = t->c + row * t->c_row + column;
    const uint64_t a_row = t->a_row, a_depth = t->a_depth, b_row = t->b_row;
    bl_vf acc[BL_TILE_ROWS][2];

    BL_TILE_UNROLL
    for (int i = 0; i < rows; i++) {
        float scale = t->row_scale ? t->row_scale[row + (uint64_t)i] : 1.0f;
        BL_TILE_UNROLL
        for (int j = 0; j < vectors; j++)
            acc[i][j] =
                t->add ? bl_v_load(c + (uint64_t)i * t->c_row + j * BL_LANES) * scale : (bl_vf){0};
    }
    for (uint64_t k = begin; k < end; k++) {
        bl_vf x[2];
        BL_TILE_UNROLL
        for (int j = 0; j < vectors; j++)
            x[j] = bl_v_load(b + j * BL_LANES);
        BL_TILE_UNROLL
        for (int i = 0; i < rows; i++) {
            bl_vf y = bl_v_set(a[(uint64_t)i * a_row]);
            BL_TILE_UNROLL
            for (int j = 0; j < vectors; j++)
                acc[i][j] = bl_v_fma(y, x[j], acc[i][j]);
        }
        a += a_depth;
        b += b_row;
    }
    BL_TILE_UNROLL
    for (int i = 0; i < rows; i++)
        BL_TILE_UNROLL
    for (int j = 0; j < vectors; j++)
        bl_v_store(c + (uint64_t)i * t->c_row + j * BL_LANES, acc[i][j]);
}

BL_V_INLINE void bl_tile_column(const struct bl_tiles *t, const int vectors, uint64_t column)
{
    uint64_t row = 0;
    for (; row + BL_TILE_ROWS <= t->rows; row += BL_TILE_ROWS)
        bl_tile(t, BL_TILE_ROWS, vectors, row, column);
    switch (t->rows - row) {
    case 5:
        bl_tile(t, 5, vectors, row, column);
        break;
    case 4:
        bl_tile(t, 4, vectors, row, column);
        break;
    case 3:
        bl_tile(t, 3, vectors, row, column);
        break;
    case 2:
        bl_tile(t, 2, vectors, row, column);
        break;
    case 1:
        bl_tile(t, 1, vectors, row, column);
        break;
    default:
        break;
    }
}

static __attribute__((unused, noinline)) void bl_tiles_run(const struct bl_tiles *t)
{
    uint64_t column = 0;
    for (; column + 2 * BL_LANES <= t->columns; column += 2 * BL_LANES)
        bl_tile_column(t, 2, column);
    if (column < t->columns)
        bl_tile_column(t, 1, column);
}

typedef float bl_v4 __attribute__((vector_size(16)));

/* out (columns, ld) = scale * in^T for in (rows, columns) of row stride `stride`; columns of out
 * from `rows` to `padded` become 0. */
static __attribute__((unused)) void bl_tile_transpose(uint64_t rows, uint64_t columns,
                                                      const float *in, uint64_t stride, float scale,
                                                      float *out, uint64_t ld, uint64_t padded)
{
    uint64_t i = 0, j;

    for (; i + 4 <= rows; i += 4) {
        const float *r = in + i * stride;
        for (j = 0; j + 4 <= columns; j += 4) {
            bl_v4 a, b, c, d, ab0, ab1, cd0, cd1;
            memcpy(&a, r + j, sizeof a);
            memcpy(&b, r + j + stride, sizeof b);
            memcpy(&c, r + j + 2 * stride, sizeof c);
            memcpy(&d, r + j + 3 * stride, sizeof d);
            ab0 = __builtin_shufflevector(a, b, 0, 4, 1, 5) * scale;
            ab1 = __builtin_shufflevector(a, b, 2, 6, 3, 7) * scale;
            cd0 = __builtin_shufflevector(c, d, 0, 4, 1, 5) * scale;
            cd1 = __builtin_shufflevector(c, d, 2, 6, 3, 7) * scale;
            a = __builtin_shufflevector(ab0, cd0, 0, 1, 4, 5);
            b = __builtin_shufflevector(ab0, cd0, 2, 3, 6, 7);
            c = __builtin_shufflevector(ab1, cd1, 0, 1, 4, 5);
            d = __builtin_shufflevector(ab1, cd1, 2, 3, 6, 7);
            memcpy(out + j * ld + i, &a, sizeof a);
            memcpy(out + (j + 1) * ld + i, &b, sizeof b);
            memcpy(out + (j + 2) * ld + i, &c, sizeof c);
            memcpy(out + (j + 3) * ld + i, &d, sizeof d);
        }
        for (; j < columns; j++)
            for (uint64_t n = 0; n < 4; n++)
                out[j * ld + i + n] = scale * r[n * stride + j];
    }
    for (; i < rows; i++)
        for (j = 0; j < columns; j++)
            out[j * ld + i] = scale * in[i * stride + j];
    for (; i < padded; i++)
        for (j = 0; j < columns; j++)
            out[j * ld + i] = 0.0f;
}

/* out (rows, padded) = in (rows, columns) of row stride `stride`, zeros in the columns after. */
static __attribute__((unused)) void bl_tile_pack(uint64_t rows, uint64_t columns, const float *in,
                                                 uint64_t stride, float *out, uint64_t padded)
{
    for (uint64_t i = 0; i < rows; i++, in += stride, out += padded) {
        memcpy(out, in, columns * sizeof *in);
        if (padded > columns)
            memset(out + columns, 0, (padded - columns) * sizeof *out);
    }
}

#endif
