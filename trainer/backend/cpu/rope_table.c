#include "backend/cpu/rope.h"

#include <math.h>

#include "base/memory.h"

static void fill(void *argument, uint64_t position)
{
    const struct bl_rope_table *t = argument;
    uint64_t half = t->head_dim / 2;

    for (uint64_t i = 0; i < half; i++) {
        double angle = (double)position * pow(t->theta, -2.0 * (double)i / (double)t->head_dim);
        t->cosine[position * half + i] = (float)cos(angle);
        t->sine[position * half + i] = (float)sin(angle);
    }
}

const struct bl_rope_table *bl_rope_table(struct bl_cpu *cpu, const struct bl_rope *a)
{
    struct bl_rope_table *t;
    uint64_t half = a->head_dim / 2;

    for (t = cpu->tables; t; t = t->next)
        if (t->theta == a->theta && t->head_dim == a->head_dim && t->time == a->time)
            return t;
    t = bl_alloc(1, sizeof *t);
    if (t)
        t->cosine = bl_alloc(2 * a->time * half, sizeof *t->cosine);
    if (!t || !t->cosine)
        bl_pool_no_memory(2 * a->time * half * sizeof *t->cosine);
    t->sine = t->cosine + a->time * half;
    t->theta = a->theta;
    t->head_dim = a->head_dim;
    t->time = a->time;
    bl_pool_run(cpu->pool, a->time, fill, t);
    t->next = cpu->tables;
    cpu->tables = t;
    return t;
}

void bl_rope_free(struct bl_rope_table *tables)
{
    while (tables) {
        struct bl_rope_table *next = tables->next;
        bl_free(tables->cosine);
        bl_free(tables);
        tables = next;
    }
}
