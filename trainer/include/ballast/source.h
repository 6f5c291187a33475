/* Sources: where token sequences come from. Order is the host's business: a source answers
 * "give me sequence i" and must give the same tokens each time. */
#ifndef BALLAST_SOURCE_H
#define BALLAST_SOURCE_H

#include <ballast/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

struct bl_source_files {
    uint32_t size;
    uint32_t validation; /* 0: training split, 1: held-out split */
    uint64_t count;
    const char *const *paths; /* globs already expanded, sorted */
    const char *format;       /* "auto" or a name */
};

struct bl_source_info {
    uint32_t size;
    uint32_t reserved;
    uint64_t vocab;     /* ids are < vocab; 0: the files do not say */
    uint64_t sequences; /* sequences of host->info->context tokens in an epoch, >= 1 */
    uint64_t tokens;    /* in an epoch */
    double entropy;     /* nats per token of the true process, NaN when unknown */
};

struct bl_source_ops {
    BL_COMMON_OPS;
    /* Once, after create. Checks every file's header and size. Error code 4 is the host's default.
     */
    int32_t (*open)(void *self, const struct bl_source_files *files, struct bl_error *err);
    void (*describe)(const void *self, struct bl_source_info *out);
    /* tokens (context,), targets (context,): targets[t] follows tokens[t]; -1 masks a target.
     * index < sequences. Every id is checked against vocab (host->info->vocab when not 0); the
     * error names file and offset. Thread-safe, and called from a thread that reads ahead: it uses
     * neither host->metric nor host->parallel_for. */
    int32_t (*read)(void *self, uint64_t index, uint64_t vocab, int32_t *tokens, int32_t *targets,
                    struct bl_error *err);
};

#ifdef __cplusplus
}
#endif
#endif
