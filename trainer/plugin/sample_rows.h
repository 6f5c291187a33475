/* Made-up rows of fp64 logits with their statistics, and a regularizer's derivatives against finite
 * differences on them. Tests use it as well as `ballast plugin test`. */
#ifndef BL_PLUGIN_SAMPLE_ROWS_H
#define BL_PLUGIN_SAMPLE_ROWS_H

#include <ballast/regularizer.h>

enum { BL_SAMPLE_ROWS = 64, BL_SAMPLE_LOGITS = 8000 };

struct bl_sample_rows {
    uint64_t rows, vocab;
    double z[BL_SAMPLE_LOGITS];     /* (rows, vocab) */
    int32_t target[BL_SAMPLE_ROWS]; /* -1 = masked */
    struct bl_row_stats stats;      /* points at the arrays below */
    double lse[BL_SAMPLE_ROWS], target_logit[BL_SAMPLE_ROWS], mean[BL_SAMPLE_ROWS],
        m2[BL_SAMPLE_ROWS], max[BL_SAMPLE_ROWS], pz[BL_SAMPLE_ROWS];
    int32_t argmax[BL_SAMPLE_ROWS];
    uint8_t valid[BL_SAMPLE_ROWS];
    struct bl_row_grads grads; /* points at value, d_lse, ... */
    double out[7][BL_SAMPLE_ROWS];
};

/* rows * vocab <= BL_SAMPLE_LOGITS, rows <= BL_SAMPLE_ROWS. Must not be moved afterwards. */
void bl_sample_rows_start(struct bl_sample_rows *r, uint64_t rows, uint64_t vocab);
/* N(offset, spread^2) logits with a clear maximum, random targets, each fourth row masked. */
void bl_sample_rows_fill(struct bl_sample_rows *r, uint64_t seed, double offset, double spread);

/* Statistics of one row in fp64. */
struct bl_sample_row {
    double lse, target, mean, m2, max, pz;
    int32_t argmax;
    uint8_t valid;
};
struct bl_sample_row bl_sample_statistics(uint64_t vocab, const double *z, int32_t target);

/* ---- checks: 0, or -1 with what is wrong in err -----------------------------------------------
 */

/* rows: every derivative against fourth-order differences, over V = 1, 2, 7, 1000, offsets 0, 1000
 * and -1000, spreads 1 and 4. */
int bl_sample_check_rows(const struct bl_regularizer_ops *ops, const void *self,
                         struct bl_error *err);
/* rows over [a, b) and [0, a) gives the bits of the whole and touches nothing else. */
int bl_sample_check_pieces(const struct bl_regularizer_ops *ops, const void *self,
                           struct bl_error *err);
/* What stands in a masked row does not reach its neighbours. */
int bl_sample_check_masked(const struct bl_regularizer_ops *ops, const void *self,
                           struct bl_error *err);
/* element or row_scale: the derivative of a smooth loss through the transform. */
int bl_sample_check_element(const struct bl_regularizer_ops *ops, const void *self,
                            struct bl_error *err);
int bl_sample_check_row_scale(const struct bl_regularizer_ops *ops, const void *self,
                              struct bl_error *err);
/* weight_grad: differences of its value over elements of `head`; the gradient is added to, times
 * the coefficient; the same bits with *reversed (the order of host->parallel_for) set and not.
 * All three are fp32 of the same shape; head and gradients are overwritten. */
int bl_sample_check_weight_grad(const struct bl_regularizer_ops *ops, void *self,
                                const struct bl_host *host, struct bl_tensor *head,
                                struct bl_tensor *gradient, struct bl_tensor *other, int *reversed,
                                struct bl_error *err);

#endif
