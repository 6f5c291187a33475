#include "model/model.h"

#include <math.h>
#include <string.h>

#include "base/random.h"

/* Counters of redraws start here; an arena has fewer elements (2^48). */
#define REDRAW ((uint64_t)1 << 48)
#define BLOCK  ((uint64_t)4096) /* elements a thread takes at a time */

/* N(0, 1) restricted to |x| <= cut by drawing again: attempt a of an element has counter
 * element + a 2^48, so no element's value depends on another's. At 3 standard deviations one draw
 * in 370 is repeated. A cut below 0.01 would need too many and is treated as 0.01. */
static double truncated(uint64_t seed, uint64_t key, uint64_t element, double cut)
{
    double x, limit = cut < 0.01 ? 0.01 : cut;

    for (uint64_t attempt = 0; attempt < 65536; attempt++) {
        x = bl_random_normal(seed, key, element + attempt * REDRAW);
        if (fabs(x) <= limit)
            return x;
    }
    return 0;
}

/* Elements [begin, end) of one parameter. */
static void fill(const struct bl_param *q, uint64_t seed, float *weights, uint64_t begin,
                 uint64_t end)
{
    float *w = weights + q->offset;

    for (uint64_t e = begin; e < end; e++) {
        if (q->init_std == 0)
            w[e] = (float)q->init_value;
        else if (q->init_cut > 0)
            w[e] = (float)(q->init_std * truncated(seed, q->key, e, q->init_cut));
        else
            w[e] = (float)(q->init_std * bl_random_normal(seed, q->key, e));
    }
}

void bl_params_init(const struct bl_params *p, uint64_t seed, float *weights)
{
    memset(weights, 0, p->floats * sizeof(*weights));
    for (uint64_t i = 0; i < p->count; i++)
        fill(&p->items[i], seed, weights, 0, p->items[i].count);
}

struct job {
    const struct bl_param *param;
    uint64_t seed;
    float *weights;
};

static void fill_block(void *argument, uint64_t i)
{
    const struct job *j = argument;
    uint64_t begin = i * BLOCK, left = j->param->count - begin;

    fill(j->param, j->seed, j->weights, begin, begin + (left < BLOCK ? left : BLOCK));
}

void bl_params_init_threads(const struct bl_params *p, uint64_t seed, float *weights,
                            struct bl_backend *backend)
{
    memset(weights, 0, p->floats * sizeof(*weights));
    for (uint64_t i = 0; i < p->count; i++)
        backend->ops->parallel_for(backend, (p->items[i].count + BLOCK - 1) / BLOCK, fill_block,
                                   &(struct job){&p->items[i], seed, weights});
}
