/* One matrix parameter with Adam's two states, for tests of optimizers. */
#ifndef BL_OPTIMIZER_MATRIX_TEST_H
#define BL_OPTIMIZER_MATRIX_TEST_H

#include "tests/lib/plugin_test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { V = 700, C = 5, N = V * C };

struct arrays {
    float w[N], g[N], m[N], v[N];
};

static inline void fill(struct arrays *a, uint64_t stream)
{
    for (uint64_t i = 0; i < N; i++) {
        a->w[i] = (float)bl_bench_normal(stream, i);
        a->g[i] = (float)(bl_bench_normal(stream + 1, i) * pow(10, (double)(i / C % 5) - 4));
        a->m[i] = 0;
        a->v[i] = 0;
    }
}

static inline struct bl_update update(struct arrays *a, float **state, const char *name)
{
    state[0] = a->m;
    state[1] = a->v;
    return (struct bl_update){.size = sizeof(struct bl_update),
                              .step = 1,
                              .count = N,
                              .key = 1,
                              .weight = a->w,
                              .gradient = a->g,
                              .state = state,
                              .gradient_scale = 1.0,
                              .learning_rate = 1e-2,
                              .weight_decay = 0.1,
                              .epsilon = NAN,
                              .update_scale = 1.0,
                              .peak_learning_rate = 4e-2,
                              .group = BL_GROUP_MATRIX,
                              .ndim = 2,
                              .rows = V,
                              .columns = C,
                              .name = name};
}

/* One update as the host makes it, in two pieces; its squared norm as prepare promised it. */
static inline double step(struct bl_bench *b, struct bl_update *u)
{
    struct bl_error err = BL_ERROR_INIT;
    u->surveyed = 0;
    if (b->ops->optimizer.survey != NULL &&
        b->ops->optimizer.survey(b->self, b->host, u, &u->surveyed, &err) != 0)
        fail_msg("%s", err.text);
    double squares = b->ops->optimizer.prepare(b->self, u, 0, N);
    b->ops->optimizer.apply(b->self, u, 4, N);
    b->ops->optimizer.apply(b->self, u, 0, 4);
    return squares;
}

#endif
