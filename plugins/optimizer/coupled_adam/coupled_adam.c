/* optimizer coupled_adam: AdamW whose output matrix has one second moment a column.
 *
 *     as adamw, but in the output matrix (V, C) what enters v is a column's mean of squares:
 *     v_c = beta2 v_c + (1 - beta2) (1/V) sum_v x_vc^2
 *
 * x   the scaled gradient     V   true vocabulary     betas, eps   as adamw
 *
 * Why: the columns of the gradient of cross-entropy by the output matrix sum to zero, and SGD keeps
 * its mean row. Adam divides each row by another number, 1 / sqrt(v) differs by token, and the mean
 * row drifts without any rounding. One v for all rows of a column takes that away.
 *
 * Source: Stollenwerk and Stollenwerk 2025, arXiv:2502.08441 (Coupled Adam). There the input
 * embedding is the output matrix too (tied); here, with untied weights, only the output matrix.
 * Because a moving average is linear, averaging the squares before is averaging v after.
 *
 * Cost: one more pass over the output matrix's gradient. The means are fp64 sums over fixed blocks
 * of rows in order; the state keeps v in full shape, all rows alike (with states of another
 * optimizer, after `train --replan`, once those have faded: 1 / (1 - beta2) updates). Else as
 * adamw.
 *
 * What it cannot do: stop a leak that is in the gradient (head_centering does), or weight decay
 * from pulling the mean row in; give rare tokens the larger steps that Adam gives them; spread its
 * state over processes (cluster.shard = "optimizer" is refused).
 */
#include "../adam.h"

enum { BLOCK = 256 /* rows */ };

static const struct bl_option options[] = {BL_ADAM_OPTIONS, {0}};

struct coupled_adam {
    struct bl_adam adam;
    double *squares;   /* (C,) means of x^2 of the last survey; the blocks' sums follow */
    uint64_t capacity; /* doubles there */
};

static int32_t create(const struct bl_host *host, const void *values, void **self,
                      struct bl_error *err)
{
    return bl_adam_create(host, values, sizeof(struct coupled_adam), self, err);
}

static void destroy(void *self)
{
    struct coupled_adam *a = self;
    if (a != NULL)
        a->adam.host->release(a->adam.host, a->squares);
    bl_adam_destroy(a);
}

static int is_head(const struct coupled_adam *a, const struct bl_update *u)
{
    return u->ndim == 2 && u->name != NULL && strcmp(u->name, a->adam.host->info->head) == 0;
}

struct job {
    const struct bl_update *u;
    double *sums; /* (blocks, C) */
};

static void sum_block(void *argument, uint64_t block)
{
    const struct job *j = argument;
    const struct bl_update *u = j->u;
    uint64_t columns = u->columns, end = (block + 1) * BLOCK;
    double *sum = j->sums + block * columns;
    memset(sum, 0, columns * sizeof(*sum));
    for (uint64_t row = block * BLOCK; row < end && row < u->rows; row++) {
        const float *g = u->gradient + row * columns;
        for (uint64_t c = 0; c < columns; c++) {
            double x = (double)g[c] * u->gradient_scale;
            sum[c] += x * x;
        }
    }
}

static int32_t survey(void *self, const struct bl_host *host, const struct bl_update *u,
                      double *out, struct bl_error *err)
{
    struct coupled_adam *a = self;
    (void)out;
    if (!is_head(a, u))
        return 0;
    uint64_t blocks = (u->rows + BLOCK - 1) / BLOCK, need = blocks * u->columns;
    if (need > a->capacity) {
        double *squares = host->allocate(host, need * sizeof(*squares));
        if (squares == NULL)
            return host->fail(host, err, "no memory for the column sums of %s", u->name);
        host->release(host, a->squares);
        a->squares = squares;
        a->capacity = need;
    }
    struct job j = {u, a->squares};
    host->parallel_for(host, blocks, sum_block, &j);
    for (uint64_t c = 0; c < u->columns; c++) {
        double sum = a->squares[c];
        for (uint64_t b = 1; b < blocks; b++)
            sum += a->squares[b * u->columns + c];
        a->squares[c] = sum / (double)u->rows;
    }
    return 0;
}

static struct bl_adam_coefficients coefficients(const struct coupled_adam *a,
                                                const struct bl_update *u)
{
    return bl_adam_coefficients(&a->adam, u, u->learning_rate, u->learning_rate * u->weight_decay);
}

static void apply(const void *self, const struct bl_update *u, uint64_t begin, uint64_t end)
{
    const struct coupled_adam *a = self;
    const struct bl_adam_coefficients c = coefficients(a, u);
    if (!is_head(a, u)) {
        bl_adam_update(&a->adam, &c, u, begin, end);
        return;
    }
    for (uint64_t i = begin; i < end; i++) {
        float x = u->gradient[i] * c.gradient_scale, squares = (float)a->squares[i % u->columns];
        float change =
            bl_adam_change(&c, u->weight[i], x, squares, &u->state[0][i], &u->state[1][i]);
        u->weight[i] = u->weight[i] + c.update_scale * change;
    }
}

static double prepare(const void *self, const struct bl_update *u, uint64_t begin, uint64_t end)
{
    const struct coupled_adam *a = self;
    const struct bl_adam_coefficients c = coefficients(a, u);
    if (!is_head(a, u))
        return bl_adam_measure(&a->adam, &c, u, begin, end);
    double sum = 0.0;
    for (uint64_t i = begin; i < end; i++) {
        float m = u->state[0][i], v = u->state[1][i], w = u->weight[i];
        float x = u->gradient[i] * c.gradient_scale, squares = (float)a->squares[i % u->columns];
        float w_new = w + bl_adam_change(&c, w, x, squares, &m, &v);
        double d = (double)w_new - (double)w;
        sum += d * d;
    }
    return sum;
}

static const struct bl_optimizer_ops ops = {.create = create,
                                            .destroy = destroy,
                                            .states = bl_adam_states,
                                            .state_name = bl_adam_state_name,
                                            .prepare = prepare,
                                            .apply = apply,
                                            .survey = survey};

BL_PLUGIN(BL_KIND_OPTIMIZER, "coupled_adam", "1.0", BL_DEVICE_CPU, ops, options,
          sizeof(struct bl_adam_options), NULL);
