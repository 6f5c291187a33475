/* The reduction laboratory: synthetic gradients of W ranks go through the sums that training uses
 * (collectives/sum.h), and what comes out is set against the sum in fp64 and against a law. */
#ifndef BL_LAB_LAB_H
#define BL_LAB_LAB_H

#include "backend/backend.h"
#include "base/strings.h"
#include "collectives/sum.h"

/* ---- values.c: what the ranks add ---- */

/* normal      N(0, 1)
 * lognormal   exp(s N(0, 1)): terms of one sign
 * ones        1.0
 * cancel      rank r < W/2 has 16 z_r, rank r + W/2 has -16 z_r, each with N(0, 1) added to it */
enum bl_lab_kind { BL_LAB_NORMAL, BL_LAB_LOGNORMAL, BL_LAB_ONES, BL_LAB_CANCEL };

struct bl_lab_values {
    char name[40]; /* "lognormal:0.5" */
    int32_t kind;
    double sigma; /* s of lognormal */
};
int bl_lab_values_read(const char *text, struct bl_lab_values *out, struct bl_error *err);
/* Mean and variance of a term; 0, or -1 where terms are not independent numbers of one kind. */
int bl_lab_moments(const struct bl_lab_values *v, double *mean, double *variance);

struct bl_lab_terms;
/* Element e of rank r is a function of (seed, r, e). All ranks at once where they fit into a
 * gibibyte, else one at a time. */
int bl_lab_terms_make(const struct bl_lab_values *v, uint32_t ranks, uint64_t elements,
                      uint64_t seed, struct bl_backend *b, struct bl_lab_terms **out,
                      struct bl_error *err);
void bl_lab_terms_free(struct bl_lab_terms *t);
bl_sum_contribute_f bl_lab_contribute; /* context: a struct bl_lab_terms */

/* ---- law.c: what error to expect ---- */

/* Rounding a number once has the relative rms error c, 1.67e-3 in bf16 (its 8 digits; each digit
 * more halves it), twice the square when it is stochastic. Independent terms of mean m and variance
 * s^2 have partial sums of mean square E(k) = k^2 m^2 + k s^2, so that
 *
 *     error^2 = sum over roundings of c^2 E(ranks in the partial sum) / E(W)
 *
 * with the terms' own roundings, the adds of the programs, and those of the average; premultiply
 * by a rounded 1/W adds the square of its relative error. For m = 0: error = c sqrt(1 + K),
 *
 *     K = sum over rounded adds of (ranks in the partial sum) / W
 *
 * The law knows of no lost addends: where partial sums stagnate the error is above it. */
struct bl_lab_law {
    double k;     /* of the coarser of the two formats */
    double error; /* NaN: terms without moments */
    double scale; /* relative error of the scaling: of 1/W in the wire format; else 0 */
};
int bl_lab_law(const struct bl_order *o, uint64_t elements, uint32_t ranks,
               const struct bl_sum_format *f, const struct bl_lab_values *v, struct bl_lab_law *out,
               struct bl_error *err);

/* ---- lab.c: measurements ---- */

struct bl_lab_setup {
    const struct bl_cluster_options *cluster;
    const struct bl_sum_format *format; /* wire, sum, collective, sum_rounding */
    const int64_t *ranks;
    size_t ranks_count;
    const uint32_t *algorithms, *averages;
    size_t algorithm_count, average_count;
    int all; /* 1: algorithms that a setting does not have are left out, not an error */
    const struct bl_lab_values *values;
    size_t value_count;
    uint64_t elements, seed;
    struct bl_backend *backend;
};

struct bl_lab_row {
    const struct bl_lab_values *values;
    uint32_t ranks, algorithm, average;
    struct bl_lab_law law;
    struct bl_sum_statistics measured;
    double first; /* W times the first element of the result */
};

/* Two algorithms on the same terms. */
struct bl_lab_difference {
    const struct bl_lab_values *values;
    uint32_t ranks, average;
    double share;    /* of the elements whose bits differ */
    double distance; /* ||a - b|| / ||b|| */
};

struct bl_lab_result {
    struct bl_lab_row *rows;
    struct bl_lab_difference *differences;
    size_t row_count, difference_count;
    struct bl_text notes; /* lines "# ...": what the bits depend on; what was left out */
};

/* Every combination of values, ranks, averages and algorithms. */
int bl_lab_run(const struct bl_lab_setup *s, struct bl_lab_result *out, struct bl_error *err);
/* algorithms: two. */
int bl_lab_compare(const struct bl_lab_setup *s, struct bl_lab_result *out, struct bl_error *err);
void bl_lab_free(struct bl_lab_result *r);
/* For each number of ranks and each algorithm: where the element is, in which order it is summed.
 */
int bl_lab_order(const struct bl_lab_setup *s, uint64_t element, struct bl_text *out,
                 struct bl_error *err);

/* ---- output.c ---- */

/* The word of a precision key ("algorithm") that stands for a value, and back: -1 for none. */
const char *bl_lab_word(const char *key, uint32_t value, char *buffer); /* of at least 32 bytes */
int bl_lab_find(const char *key, const char *word);

void bl_lab_print(const struct bl_lab_setup *s, const struct bl_lab_result *r, FILE *out);
int bl_lab_json(const struct bl_lab_setup *s, const struct bl_lab_result *r, const char *path,
                struct bl_error *err);
/* A PNG: error against W, measured and by the law. */
int bl_lab_plot(const struct bl_lab_setup *s, const struct bl_lab_result *r, const char *path,
                struct bl_error *err);

#endif
