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
 * of rows in order; the state keeps v in full shape, all rows alike. Else as adamw.
 *
 * What it cannot do: stop a leak that is in the gradient (head_centering does), or weight decay
 * from pulling the mean row in; give rare tokens the larger steps that Adam gives them; spread its
 * state over processes (cluster.shard = "optimizer" is refused).
 */
#include "../adam.h"

enum { BLOCK = 256 /* rows */ };

struct options {
    struct bl_floats betas;
    double eps;
};

static const struct bl_option options[] = {
    {"betas", BL_OPTION_FLOATS, 0, "0.9,0.95", "[0,1)", "decay rates of the two moments",
     offsetof(struct options, betas)},
    {"eps", BL_OPTION_FLOAT, 0, "1e-8", "[1e-30,1]", "added to the root of the second moment",
     offsetof(struct options, eps)},
    {0}};

struct coupled_adam {
    const struct bl_host *host;
    double beta1, beta2, eps;
    int avx2;
    const char *head;  /* name of the output matrix */
    double *squares;   /* (C,) means of x^2 of the last survey; the blocks' sums follow */
    uint64_t capacity; /* doubles there */
};

static int32_t create(const struct bl_host *host, const void *values, void **self,
                      struct bl_error *err)
{
    const struct options *o = values;
    if (o->betas.count != 2)
        return host->fail(host, err, "betas has %llu values, wants 2: betas = [ 0.9, 0.95 ]",
                          (unsigned long long)o->betas.count);
    struct coupled_adam *a = host->allocate(host, sizeof(*a));
    if (a == NULL)
        return host->fail(host, err, "no memory for %zu bytes", sizeof(*a));
    a->host = host;
    a->beta1 = o->betas.values[0];
    a->beta2 = o->betas.values[1];
    a->eps = o->eps;
    a->avx2 = bl_use_avx2();
    a->head = host->info->head;
    *self = a;
    return 0;
}

static void destroy(void *self)
{
    struct coupled_adam *a = self;
    if (a != NULL) {
        a->host->release(a->host, a->squares);
        a->host->release(a->host, a);
    }
}

static uint32_t states(const void *self)
{
    (void)self;
    return 2;
}

static const char *state_name(const void *self, uint32_t i)
{
    (void)self;
    return i == 0 ? "moment1" : i == 1 ? "moment2" : NULL;
}

static int is_head(const struct coupled_adam *a, const struct bl_update *u)
{
    return u->ndim == 2 && u->name != NULL && strcmp(u->name, a->head) == 0;
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

static struct coefficients coefficients(const struct coupled_adam *a, const struct bl_update *u)
{
    return coefficients_of(u, a->beta1, a->beta2, a->eps, u->learning_rate,
                           u->learning_rate * u->weight_decay);
}

/* The operations of adam.h's change() in their order, with the column's mean for x^2. */
static float coupled_change(const struct coefficients *c, float w, float gradient, float squares,
                            float *m, float *v)
{
    float x = gradient * c->gradient_scale;
    *m = c->beta1 * *m + c->rest1 * x;
    *v = c->beta2 * *v + c->rest2 * squares;
    return -(c->decay * w + c->step * (*m / (sqrtf(*v) * c->root + c->eps)));
}

static void apply(const void *self, const struct bl_update *u, uint64_t begin, uint64_t end)
{
    const struct coupled_adam *a = self;
    const struct coefficients c = coefficients(a, u);
    if (!is_head(a, u)) {
        adam_apply(a->avx2, &c, u, begin, end);
        return;
    }
    for (uint64_t i = begin; i < end; i++) {
        float squares = (float)a->squares[i % u->columns];
        float change_of = coupled_change(&c, u->weight[i], u->gradient[i], squares, &u->state[0][i],
                                         &u->state[1][i]);
        u->weight[i] = u->weight[i] + c.update_scale * change_of;
    }
}

static double prepare(const void *self, const struct bl_update *u, uint64_t begin, uint64_t end)
{
    const struct coupled_adam *a = self;
    const struct coefficients c = coefficients(a, u);
    if (!is_head(a, u))
        return adam_prepare(a->avx2, &c, u, begin, end);
    double sum = 0.0;
    for (uint64_t i = begin; i < end; i++) {
        float m = u->state[0][i], v = u->state[1][i], w = u->weight[i];
        float squares = (float)a->squares[i % u->columns];
        float w_new = w + coupled_change(&c, w, u->gradient[i], squares, &m, &v);
        double d = (double)w_new - (double)w;
        sum += d * d;
    }
    return sum;
}

static const struct bl_optimizer_ops ops = {.create = create,
                                            .destroy = destroy,
                                            .states = states,
                                            .state_name = state_name,
                                            .prepare = prepare,
                                            .apply = apply,
                                            .survey = survey};

BL_PLUGIN(BL_KIND_OPTIMIZER, "coupled_adam", "1.0", BL_DEVICE_CPU, ops, options,
          sizeof(struct options), NULL);
