#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "lab/lab.h"

enum { BLOCK = 4096 }; /* elements; even: normal numbers come in pairs */
#define MOST_BYTES ((uint64_t)1 << 30)
#define CANCEL     16.0

struct bl_lab_terms {
    struct bl_lab_values values;
    uint32_t ranks;
    uint64_t elements, blocks, seed;
    struct bl_backend *backend;
    int whole;     /* all ranks are there */
    uint32_t rank; /* else: which one */
    float *data;   /* (ranks or 1, elements) */
};

int bl_lab_values_read(const char *text, struct bl_lab_values *out, struct bl_error *err)
{
    static const char *const names[] = {"normal", "lognormal", "ones", "cancel"};
    struct bl_lab_values v = {.kind = -1, .sigma = 0.5};
    size_t n = strcspn(text, ":");
    for (int k = 0; k < 4; k++)
        if (strlen(names[k]) == n && memcmp(names[k], text, n) == 0)
            v.kind = k;
    if (v.kind < 0 || (text[n] == ':' && v.kind != BL_LAB_LOGNORMAL))
        return bl_error_set(err, BL_EXIT_USAGE,
                            "--values %s: normal, lognormal[:SIGMA], ones or cancel", text);
    if (text[n] == ':' &&
        (bl_parse_double(text + n + 1, &v.sigma) != 0 || !(v.sigma >= 0 && v.sigma <= 4)))
        return bl_error_set(err, BL_EXIT_USAGE, "--values %s: SIGMA is a number in 0 ... 4", text);
    if (v.kind == BL_LAB_LOGNORMAL)
        snprintf(v.name, sizeof v.name, "lognormal:%.6g", v.sigma);
    else
        snprintf(v.name, sizeof v.name, "%s", names[v.kind]);
    *out = v;
    return 0;
}

int bl_lab_moments(const struct bl_lab_values *v, double *mean, double *variance)
{
    double s2 = v->sigma * v->sigma;
    switch (v->kind) {
    case BL_LAB_NORMAL:
        *mean = 0;
        *variance = 1;
        return 0;
    case BL_LAB_LOGNORMAL:
        *mean = exp(s2 / 2);
        *variance = expm1(s2) * exp(s2);
        return v->sigma > 0 ? 0 : -1;
    default:
        return -1;
    }
}

/* Two N(0, 1) of one 64-bit number (Box and Muller). */
static void normal_pair(uint64_t seed, uint64_t stream, uint64_t counter, double z[2])
{
    uint64_t bits = bl_random(seed, stream, counter);
    double u = (double)((bits >> 32) + 1) * 0x1p-32, angle = (double)(uint32_t)bits * 0x1p-32;
    double radius = sqrt(-2 * log(u));
    z[0] = radius * cos(angle * 6.283185307179586);
    z[1] = radius * sin(angle * 6.283185307179586);
}

static void pair(const struct bl_lab_terms *t, uint32_t rank, uint64_t counter, double x[2])
{
    const struct bl_lab_values *v = &t->values;
    uint32_t half = t->ranks / 2;
    double z[2];
    switch (v->kind) {
    case BL_LAB_ONES:
        x[0] = x[1] = 1;
        return;
    case BL_LAB_LOGNORMAL:
        normal_pair(t->seed, rank, counter, z);
        x[0] = exp(v->sigma * z[0]);
        x[1] = exp(v->sigma * z[1]);
        return;
    case BL_LAB_CANCEL:
        normal_pair(t->seed, (uint64_t)t->ranks + rank, counter, x);
        if (rank < 2 * half) {
            double sign = rank < half ? CANCEL : -CANCEL;
            normal_pair(t->seed, rank % half, counter, z);
            x[0] += sign * z[0];
            x[1] += sign * z[1];
        }
        return;
    default:
        normal_pair(t->seed, rank, counter, x);
    }
}

static void fill(void *argument, uint64_t i)
{
    struct bl_lab_terms *t = argument;
    uint32_t rank = t->whole ? (uint32_t)(i / t->blocks) : t->rank;
    uint64_t begin = i % t->blocks * BLOCK;
    uint64_t end = begin + BLOCK < t->elements ? begin + BLOCK : t->elements;
    float *row = t->data + (t->whole ? rank * t->elements : 0);
    for (uint64_t e = begin; e < end; e += 2) {
        double x[2];
        pair(t, rank, e / 2, x);
        row[e] = (float)x[0];
        if (e + 1 < end)
            row[e + 1] = (float)x[1];
    }
}

int bl_lab_terms_make(const struct bl_lab_values *v, uint32_t ranks, uint64_t elements,
                      uint64_t seed, struct bl_backend *b, struct bl_lab_terms **out,
                      struct bl_error *err)
{
    struct bl_lab_terms *t = bl_alloc(1, sizeof *t);
    if (t == NULL)
        goto memory;
    *t = (struct bl_lab_terms){.values = *v,
                               .ranks = ranks,
                               .elements = elements,
                               .blocks = (elements + BLOCK - 1) / BLOCK,
                               .seed = seed,
                               .backend = b,
                               .whole = elements <= MOST_BYTES / sizeof(float) / ranks,
                               .rank = UINT32_MAX};
    t->data = bl_alloc(elements, sizeof(float) * (t->whole ? ranks : 1));
    if (t->data == NULL)
        goto memory;
    if (t->whole)
        b->ops->parallel_for(b, t->blocks * ranks, fill, t);
    *out = t;
    return 0;
memory:
    bl_lab_terms_free(t);
    return bl_error_set(err, BL_EXIT_FAILED,
                        "no memory for %llu terms of %u ranks; try a smaller --elements",
                        (unsigned long long)elements, ranks);
}

void bl_lab_terms_free(struct bl_lab_terms *t)
{
    if (t == NULL)
        return;
    bl_free(t->data);
    bl_free(t);
}

int bl_lab_contribute(void *context, uint32_t rank, int again, struct bl_sum_contribution *out,
                      struct bl_error *err)
{
    struct bl_lab_terms *t = context;
    (void)again;
    (void)err;
    if (!t->whole && t->rank != rank) {
        t->rank = rank;
        t->backend->ops->parallel_for(t->backend, t->blocks, fill, t);
    }
    *out = (struct bl_sum_contribution){t->data + (t->whole ? rank * t->elements : 0), NULL};
    return 0;
}
