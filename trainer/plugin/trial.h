/* One check of a plugin in a process of its own: instances over the real host table, with services
 * that count and record, and a small made-up model.
 *
 * The process ends with the check. A check that fails therefore returns at once and leaves what it
 * holds to the exit. */
#ifndef BL_PLUGIN_TRIAL_H
#define BL_PLUGIN_TRIAL_H

#include "base/strings.h"
#include "plugin/conformance.h"
#include "plugin/host.h"

enum bl_outcome {
    BL_CHECK_OK,
    BL_CHECK_FAILED,
    BL_CHECK_SKIPPED,
    BL_CHECK_USAGE /* what the user wrote is wrong, not the plugin */
};

enum {
    BL_TRIAL_TENSORS = 4,
    BL_TRIAL_ARRAYS = 5,      /* weight, gradient, two states, cross-entropy part */
    BL_TRIAL_ELEMENTS = 5120, /* of the largest tensor: more than one block of the host's sums */
    BL_TRIAL_VOCAB = 32,
    BL_TRIAL_ROWS = 64
};

struct bl_trial {
    const struct bl_conformance *conformance;
    const char *path;      /* with a '/' */
    const char *directory; /* an empty folder, also the run's */
    struct bl_node *config;

    struct bl_run_info info;
    struct bl_services services;
    uint32_t kind;
    char title[160];            /* "regularizer z_loss 1.0" */
    struct bl_library *library; /* keeps the file loaded while instances come and go */
    const struct bl_plugin *plugin;
    int reversed;         /* parallel_for runs its bodies last to first */
    int64_t live;         /* blocks of host->allocate that are not released */
    uint64_t metrics;     /* reported since it was set to 0 */
    char bad_metric[120]; /* the first that was not finite, else "" */
    char reason[600];     /* why it failed or does not apply */

    float data[BL_TRIAL_TENSORS][BL_TRIAL_ARRAYS][BL_TRIAL_ELEMENTS];
};

/* The reason, as one line; the answer is the outcome: `return bl_trial_fail(t, ...)`. */
enum bl_outcome bl_trial_fail(struct bl_trial *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
enum bl_outcome bl_trial_skip(struct bl_trial *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
#define BL_EXPECT(t, condition, ...)                                                               \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return bl_trial_fail(t, __VA_ARGS__);                                                  \
    } while (0)

/* Fills in services, run info and the model's numbers. */
void bl_trial_start(struct bl_trial *t, const struct bl_conformance *c, const char *path,
                    const char *directory, struct bl_node *config);
/* Opens the library and keeps it. */
int bl_trial_open(struct bl_trial *t, struct bl_error *err);
/* One more instance with `config` (NULL: the trial's own keys). */
int bl_trial_make(struct bl_trial *t, const struct bl_node *config, struct bl_plugin_instance **out,
                  struct bl_error *err);
/* The same, its error as the reason of a failed check. */
enum bl_outcome bl_trial_instance(struct bl_trial *t, struct bl_plugin_instance **out);

/* Tensor i of the model as plugins get it; array 0 ... BL_TRIAL_ARRAYS - 1. */
struct bl_tensor bl_trial_tensor(struct bl_trial *t, unsigned i, unsigned array);
/* N(0, 1), a function of its arguments alone. */
double bl_trial_normal(uint64_t stream, uint64_t i);
/* A few steps of a run for kinds with a history (guards, monitors); nothing for others. */
int bl_trial_use(struct bl_trial *t, struct bl_plugin_instance *i, unsigned steps,
                 struct bl_error *err);
/* XXH64 of the model's numbers, to see whether somebody wrote to them. */
uint64_t bl_trial_hash(const struct bl_trial *t);

/* ---- the checks -------------------------------------------------------------------------------
 */
struct bl_check {
    const char *name;
    enum bl_outcome (*run)(struct bl_trial *t);
    int needed; /* without it no other check means anything */
};

extern const struct bl_check bl_checks_common[]; /* tables end with a NULL name */
extern const struct bl_check bl_checks_regularizer[], bl_checks_precision[], bl_checks_schedule[],
    bl_checks_monitor[], bl_checks_optimizer[], bl_checks_guard[], bl_checks_sink[],
    bl_checks_source[], bl_checks_tokenizer[];

#endif
