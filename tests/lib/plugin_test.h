/* The bench that every plugin test runs on: a BUILT plugin file, loaded by the real loader and run
 * behind the real host table, over services that the test supplies.
 *
 *     struct bl_bench b;
 *     bl_bench_start(&b);
 *     bl_bench_open(&b, BL_KIND_REGULARIZER, "z_loss", "coefficient = 0.5;");
 *     b.ops->regularizer.rows(b.self, ...);
 *     bl_bench_stop(&b);
 *
 * Functions of this header that are not said to return -1 fail the running cmocka test. The folder
 * of the plugins comes from BALLAST_PLUGIN_PATH.
 */
#ifndef BL_TESTS_PLUGIN_TEST_H
#define BL_TESTS_PLUGIN_TEST_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "plugin/host.h"

enum {
    BL_BENCH_METRICS = 256,
    BL_BENCH_TENSORS = 64,
    BL_BENCH_ARRAYS = 17 /* every value of enum bl_which */
};

struct bl_bench_metric {
    char name[120];
    double value;
};

/* One parameter; arrays[which] belongs to the test, NULL = absent. */
struct bl_bench_tensor {
    char name[64];
    uint32_t group;
    uint64_t rows, cols; /* cols 0: one dimension */
    float *arrays[BL_BENCH_ARRAYS];
    double update_squares; /* what host->update_squares answers; NaN at first */
};

struct bl_bench {
    /* Inputs: bl_bench_start sets defaults, the test may change them before bl_bench_open. */
    struct bl_run_info info; /* 1 rank, untied, V 32, width 8, 2 layers, 8 x 16 tokens, seed 42 */
    struct bl_services services;
    /* What host->reduction answers, by group, the last for all; size 0, as at first: not measured.
     */
    struct bl_reduction reductions[BL_GROUP_COUNT + 1];
    int reversed; /* 1: parallel_for runs its bodies last to first; may change at any time */

    /* What came of it. */
    struct bl_bench_metric metrics[BL_BENCH_METRICS];
    size_t metric_count;
    uint64_t reduces;    /* calls of all_reduce */
    struct bl_error err; /* of the last load or create */

    /* The instance; NULL before bl_bench_open and after bl_bench_close. */
    struct bl_plugin_instance *instance;
    const union bl_ops *ops;
    void *self;
    const struct bl_host *host;

    /* private */
    uint32_t kind;
    char *name, *config;
    struct bl_bench_tensor tensors[BL_BENCH_TENSORS];
    size_t tensor_count;
    struct bl_node *root;
    struct bl_instance configured;
    int log_fd; /* of a file without a name */
    char *log_text;
};

void bl_bench_start(struct bl_bench *b);
void bl_bench_stop(struct bl_bench *b); /* closes too */

/* Adds parameter `name` or, when it is there, one more array of it. The host then finds it by name
 * and by index (order of first mention); by name only where it has a BL_WEIGHT array. */
struct bl_bench_tensor *bl_bench_tensor(struct bl_bench *b, const char *name, uint32_t group,
                                        uint64_t rows, uint64_t cols, uint32_t which, float *data);

/* Loads kind_name.so with `config`, the plugin's own keys in libconfig syntax ("" or NULL: defaults
 * only; line 1 of the file "bench"), and creates an instance. */
void bl_bench_open(struct bl_bench *b, uint32_t kind, const char *name, const char *config);
/* The same; 0, or -1 with b->err set and nothing left open. */
int bl_bench_try(struct bl_bench *b, uint32_t kind, const char *name, const char *config);
/* Expects bl_bench_try to fail with exit code `code` and a one-line message that has `word` in it.
 */
void bl_bench_refuses(struct bl_bench *b, uint32_t kind, const char *name, const char *config,
                      int code, const char *word);
void bl_bench_close(struct bl_bench *b); /* destroys the instance; nothing to close is fine */

/* The value reported last under this name; NaN when there is none (bl_bench_has tells). */
double bl_bench_metric(const struct bl_bench *b, const char *name);
int bl_bench_has(const struct bl_bench *b, const char *name);
void bl_bench_forget(struct bl_bench *b); /* drops all metrics */

/* What was logged since bl_bench_start, as text; valid until the next call. */
const char *bl_bench_log(struct bl_bench *b);
unsigned bl_bench_logged(struct bl_bench *b, const char *word); /* times that `word` occurs */

/* What holds for every plugin: all checks of `ballast plugin test`; the file is refused as any
 * other kind; an unknown key is refused with the nearest one and its place. `required`: keys
 * without a default as "key = value; ...", else "". */
void bl_bench_common(uint32_t kind, const char *name, const char *required);

/* Saves the open instance's state, replaces the instance by a fresh one of the same configuration,
 * loads the state into it and expects it to save to the same bytes. Call it in mid-use, then go on:
 * the plugin must answer as if nothing had happened. */
void bl_bench_reload(struct bl_bench *b);

/* ---- regularizers (regularizer_test.c) ------------------------------------------------------- */

/* Rows of fp64 logits with their statistics, computed in fp64. */
struct bl_bench_rows {
    uint64_t rows, vocab;
    double *z;       /* (rows, vocab) */
    int32_t *target; /* (rows,), -1 = masked */
    struct bl_row_stats stats;
    double *lse, *target_logit, *mean, *m2, *max, *pz;
    int32_t *argmax;
    uint8_t *valid;
    double *value, *d_lse, *d_target, *d_mean, *d_m2, *d_max, *d_pz; /* outputs of an op */
    struct bl_row_grads grads;                                       /* points at them */
};

void bl_bench_rows_make(struct bl_bench_rows *r, uint64_t rows, uint64_t vocab);
void bl_bench_rows_free(struct bl_bench_rows *r);
/* N(offset, spread^2) logits with a clear maximum, random targets, each fourth row masked. */
void bl_bench_rows_fill(struct bl_bench_rows *r, uint64_t seed, double offset, double spread);
/* Recomputes the statistics from z. The target statistic of a masked row is NaN. */
void bl_bench_rows_stats(struct bl_bench_rows *r);
/* Zeroes the outputs, calls the open plugin's rows over all rows. */
void bl_bench_rows_call(const struct bl_bench *b, struct bl_bench_rows *r);
/* dz (vocab,) of row i from its outputs by the formula in <ballast/regularizer.h>. */
void bl_bench_rows_dz(const struct bl_bench_rows *r, uint64_t i, double *dz);
/* Value of the open plugin for one row of logits. */
double bl_bench_row_value(const struct bl_bench *b, uint64_t vocab, const double *z,
                          int32_t target);

/* rows: derivatives against finite differences in fp64 for V = 1, 2, 7, 1000, offsets 0 and 1000,
 * spreads 1 and 4; pieces [begin, end) give the bits of the whole and touch nothing else; masked
 * rows do not reach their neighbours. */
void bl_bench_check_rows(const struct bl_bench *b);
/* The value's change when a constant is added to all logits: not zero (a gauge force), or zero. */
void bl_bench_check_shift(const struct bl_bench *b, int changes);
/* row_scale or element: finite differences of a smooth loss through the transform. */
void bl_bench_check_transform(const struct bl_bench *b);
/* weight_grad: finite differences over a random (rows, cols) matrix; gradient NULL gives the same
 * value; the coefficient multiplies; the gradient is added to; the same bits in reversed order. */
void bl_bench_check_weight_grad(struct bl_bench *b, uint64_t rows, uint64_t cols);

/* ---- precision (precision_test.c) -------------------------------------------------------------
 */

/* What a policy sets for all groups alike; formats are BL_FP32 or BL_BF16. */
struct bl_bench_policy {
    uint32_t gradient, accumulate, wire, sum, master, moments;
    uint32_t average, algorithm, collective; /* enum bl_average_value ... */
};

/* The table of a policy that computes in bf16, with fp32 arithmetic in norms, bf16 logits and
 * nearest rounding everywhere; it leaves alone what is beyond the dials that there are. */
void bl_bench_check_policy(const char *name, const struct bl_bench_policy *wanted);

/* A view of fp32 data as plugins get it; cols 0: one dimension. */
struct bl_tensor bl_bench_view(const char *name, uint32_t group, uint64_t rows, uint64_t cols,
                               float *data);
/* N(0, 1) from a stream of this bench. */
double bl_bench_normal(uint64_t stream, uint64_t i);

#endif
