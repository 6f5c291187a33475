/* The regularizers of a run as one thing: what the head calls, what the step loop calls.
 *
 *     loss/<name> = value of instance i        loss/aux = sum of coefficient * value
 *
 * An instance at its null setting is measured and otherwise absent: its derivatives are not added,
 * its transform and projections are not run, it is not in the weighted sum.
 *
 * Order of calls in a step: begin; the head's hooks, any number of times, rows in (sequence, time)
 * order; sums, set_sum; weight_grad; project_grad; value, aux; after the update project_weight.
 */
#ifndef BL_REGULARIZERS_H
#define BL_REGULARIZERS_H

#include "model/model.h"
#include "plugin/host.h"

struct bl_regularizers;

/* The instances are created, stay the caller's and outlive the set; config order. capacity: rows of
 * logits in a step, of all ranks. */
int bl_regularizers_make(struct bl_plugin_instance *const *instances, size_t count,
                         struct bl_backend *backend, uint64_t capacity,
                         struct bl_regularizers **out, struct bl_error *err);
void bl_regularizers_free(struct bl_regularizers *set); /* NULL is fine */

/* A new update, 1-based: forgets the rows and values of the one before. */
void bl_regularizers_begin(struct bl_regularizers *set, uint64_t step);

/* The head's view of the set; valid as long as the set. Members nobody needs are NULL.
 *   row_scale  out's derivatives are zeroed first.
 *   rows       adds coefficient * derivative in the unit in which one target's cross-entropy has
 *              d_lse 1, d_target -1; arrays of `out` may be NULL; masked rows are left as they are.
 *              Values are kept per row.
 * For evaluation use bl_regularizers_transforms: no rows, so nothing is counted as training. */
const struct bl_head_hooks *bl_regularizers_hooks(const struct bl_regularizers *set);
const struct bl_head_hooks *bl_regularizers_transforms(const struct bl_regularizers *set);

/* The rows that come next are the rows `row`, row + 1, ... of the step: a rank's rows have a place
 * of their own, whoever computes them and however often. begin sets it to 0. */
void bl_regularizers_at(struct bl_regularizers *set, uint64_t row);
/* out (count of instances) := sum of each instance's values over rows first ... first + count - 1,
 * one fp64 add a row in order, whatever the chunks and threads were. More rows than the capacity
 * have come: NaN. */
void bl_regularizers_sums(const struct bl_regularizers *set, uint64_t first, uint64_t count,
                          double *out);
/* The sum over all rows of the global batch, which value and aux are made of. */
void bl_regularizers_set_sum(struct bl_regularizers *set, size_t i, double sum);

/* head and gradient: the output matrix and its reduced gradient, (V, C) fp32. Adds
 * coefficient * d value / d head of every instance with a term on the matrix. */
void bl_regularizers_weight_grad(struct bl_regularizers *set, const struct bl_tensor *head,
                                 struct bl_tensor *gradient);
/* In config order; an error names the instance. */
int bl_regularizers_project_grad(struct bl_regularizers *set, struct bl_tensor *gradient,
                                 struct bl_error *err);
int bl_regularizers_project_weight(struct bl_regularizers *set, struct bl_tensor *head,
                                   struct bl_error *err);

/* loss/<name>, plain: the mean over `targets` (unmasked targets of the global batch) plus the term
 * on the output matrix; NaN for an instance that has no value (transform, projection). */
double bl_regularizers_value(const struct bl_regularizers *set, size_t i, uint64_t targets);
int bl_regularizers_has_value(const struct bl_regularizers *set, size_t i);
/* loss/aux: sum of coefficient * value. */
double bl_regularizers_aux(const struct bl_regularizers *set, uint64_t targets);

/* 1 when somebody works on the output matrix after the reduction, or after the update. */
int bl_regularizers_has_weight_grad(const struct bl_regularizers *set);
int bl_regularizers_has_project_grad(const struct bl_regularizers *set);
int bl_regularizers_has_project_weight(const struct bl_regularizers *set);

#endif
