/* How a matrix is cut into tiles: by its shape alone, so that the bits of a product do not depend
 * on the number of threads.
 *
 * A tile is one GEMM call of one thread. Measured with OpenBLAS 0.3.21 on Zen 3, relative to the
 * best size: 256x384 98%, 256x256 96%, 256x192 and 128x256 92%, 128x128 86%, 64x128 80%; bigger
 * ones gain little and leave threads idle. So: 256x384, smaller only while there are fewer than
 * four tiles. Rows and columns are shared out evenly in multiples of 16, the widest register block.
 */
#ifndef BL_BACKEND_CPU_CUT_H
#define BL_BACKEND_CPU_CUT_H

#include <stdint.h>

struct bl_cut {
    uint64_t rows, columns;           /* of the matrix */
    uint64_t tile_rows, tile_columns; /* of a tile; the last ones may be smaller */
    uint64_t across;                  /* tiles side by side */
    uint64_t count;
};

struct bl_tile_area {
    uint64_t row, column, rows, columns;
};

static inline uint64_t bl_cut_size(uint64_t n, uint64_t most)
{
    uint64_t pieces = (n + most - 1) / most, size = (n + pieces - 1) / pieces;

    return (size + 15) / 16 * 16;
}

static inline struct bl_cut bl_cut_make(uint64_t rows, uint64_t columns)
{
    static const uint64_t most[][2] = {{256, 384}, {256, 192}, {128, 192}};
    struct bl_cut c = {rows, columns, 0, 0, 0, 0};

    if (rows == 0 || columns == 0)
        return c;
    for (int i = 0; i < 3 && c.count < 4; i++) {
        c.tile_rows = bl_cut_size(rows, most[i][0]);
        c.tile_columns = bl_cut_size(columns, most[i][1]);
        c.across = (columns + c.tile_columns - 1) / c.tile_columns;
        c.count = c.across * ((rows + c.tile_rows - 1) / c.tile_rows);
    }
    return c;
}

static inline struct bl_tile_area bl_cut_tile(const struct bl_cut *c, uint64_t index)
{
    struct bl_tile_area t = {index / c->across * c->tile_rows, index % c->across * c->tile_columns,
                             c->tile_rows, c->tile_columns};

    if (t.rows > c->rows - t.row)
        t.rows = c->rows - t.row;
    if (t.columns > c->columns - t.column)
        t.columns = c->columns - t.column;
    return t;
}

#endif
