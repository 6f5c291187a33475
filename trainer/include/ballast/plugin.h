/* The plugin ABI: descriptor, option table, error, host table.
 *
 * A plugin is one shared object that exports one data symbol, BL_PLUGIN_SYMBOL, of type
 * struct bl_plugin. The trainer reads and checks it in the file, before dlopen and therefore
 * before any code of the plugin runs.
 *
 * Rules that keep binaries compatible for the whole of major version 1:
 *   - members are fixed-width integers, float, double and pointers; no enum, bool or bit-field;
 *   - a struct that the host passes to a plugin starts with its size and grows only at its end;
 *   - the ops of a kind grow only at their end: the host copies min(ops_size, its own size) into
 *     a zeroed struct, so an older plugin has NULL in the newer members;
 *   - an optional op may be NULL; who allocates frees; no exception or longjmp crosses the border;
 *   - plugins start no threads (host->parallel_for does) and call nothing of the trainer but the
 *     host table.
 *   - no code runs at loading: constructors (C++ objects with static storage, -init, the one that
 *     -ffast-math adds) are refused; nvcc's own pass where device code and BL_DEVICE_CUDA are.
 */
#ifndef BALLAST_PLUGIN_H
#define BALLAST_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#include <ballast/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BL_PLUGIN_MAGIC  0x54534c42u /* "BLST" in a little-endian file */
#define BL_ABI_MAJOR     1
#define BL_ABI_MINOR     0
#define BL_PLUGIN_SYMBOL "ballast_plugin_v1"

enum bl_kind_value {
    BL_KIND_REGULARIZER = 1,
    BL_KIND_PRECISION = 2,
    BL_KIND_SCHEDULE = 3,
    BL_KIND_MONITOR = 4,
    BL_KIND_OPTIMIZER = 5,
    BL_KIND_GUARD = 6,
    BL_KIND_SINK = 7,
    BL_KIND_SOURCE = 8,
    BL_KIND_TOKENIZER = 9,
    BL_KIND_COUNT = 10
};

/* An error as its receiver owns it. code is an exit code of the program; 0 lets the host choose. */
struct bl_error {
    uint32_t size;
    int32_t code;
    char text[1016];
};

/* ---- options ---------------------------------------------------------------------------------
 * One row an option; the table ends with a row whose key is NULL. Frozen for major 1.
 *
 * type       member at `offset`           default as text        range as text
 * INT        int64_t                      "100"                  "[0,inf)"
 * FLOAT      double                       "1e-4"                 "(0,1]"; ints are accepted
 * BOOL       int32_t (0 or 1)             "true"
 * STRING     const char *                 "text" (NULL = "")
 * CHOICE     int32_t (index)              "ring"                 "ring|tree|alltoall"
 * INTS       struct bl_ints               "1,2,3" ("" = empty)   range of each element
 * FLOATS     struct bl_floats             "0.9,0.95"             range of each element
 * STRINGS    struct bl_strings            "a,b"
 *
 * A range is an interval: '[' or '(' , low ',' high, ']' or ')', with -inf and inf; NULL = any
 * finite value. Strings and vectors live as long as the instance.
 */
enum bl_option_type {
    BL_OPTION_INT = 1,
    BL_OPTION_FLOAT = 2,
    BL_OPTION_BOOL = 3,
    BL_OPTION_STRING = 4,
    BL_OPTION_CHOICE = 5,
    BL_OPTION_INTS = 6,
    BL_OPTION_FLOATS = 7,
    BL_OPTION_STRINGS = 8
};

enum bl_option_flag {
    BL_OPTION_REQUIRED = 1 /* must be written; default is then NULL */
};

struct bl_option {
    const char *key;
    uint32_t type;
    uint32_t flags;
    const char *default_text;
    const char *range;
    const char *doc; /* one line, with the unit */
    uint64_t offset; /* of the member in the options struct */
};

struct bl_ints {
    uint64_t count;
    const int64_t *values;
};

struct bl_floats {
    uint64_t count;
    const double *values;
};

struct bl_strings {
    uint64_t count;
    const char *const *values;
};

/* ---- host table ------------------------------------------------------------------------------
 * The only way from a plugin to the trainer. Valid from create to destroy.
 */
struct bl_run_info { /* facts of the run that never change; host->info */
    uint32_t size;
    uint32_t tied; /* 1: the output matrix is the embedding */
    const char *name;
    const char *directory; /* of this run; "" when there is none (ballast check, tests) */
    uint64_t seed;
    uint64_t steps;     /* updates in the whole plan */
    uint64_t sequences; /* global batch, sequences a step */
    uint64_t context;   /* tokens a sequence */
    uint64_t vocab;     /* true vocabulary V; 0 until the source has told it */
    uint64_t width;
    uint64_t layers;
    uint64_t parameters; /* tied weights counted once */
    const char *head;    /* name of the output matrix: "head.weight" or "embed.weight" */
};

enum bl_log_level { BL_LOG_ERROR = 0, BL_LOG_WARNING = 1, BL_LOG_INFO = 2, BL_LOG_DEBUG = 3 };

/* Which array of a parameter host->tensor gives. */
enum bl_which {
    BL_WEIGHT = 0,      /* master weights, fp32 */
    BL_GRADIENT = 1,    /* reduced gradient of this step, before guards scale it */
    BL_STATE0 = 2,      /* optimizer state arrays, in the optimizer's order: BL_STATE0 + i; none
                         * where they are spread over processes (cluster.shard) */
    BL_CE_GRADIENT = 16 /* cross-entropy part of the output matrix's gradient; where kept apart */
};

/* What the sum over ranks did to the gradients of this step: g is the mean of the ranks' gradients
 * in fp64, out what the reduction made of them. NaN where unknown. */
struct bl_reduction {
    uint32_t size; /* set by the caller */
    uint32_t reserved;
    double error;      /* ||out - g|| / ||g|| */
    double bias;       /* <out - g, g> / <g, g> */
    double lost_share; /* share of non-zero addends that left a partial sum as it was */
};

struct bl_host {
    uint32_t size;
    uint32_t device; /* BL_DEVICE_... that tensors live on */
    /* Whose data this plugin is handed: `rank` of `ranks` parts of the batch. A job of several
     * processes hands all of them the whole batch's rows and gradients, with the same bits, so
     * that to a plugin it looks like one process: 0 of 1. */
    uint32_t rank;
    uint32_t ranks;
    void *context; /* the host's own */
    void *stream;  /* device stream, NULL on the CPU */
    const struct bl_run_info *info;

    /* printf-style; the line gets time, rank and plugin name in front. Of warnings with the same
     * format only the 1st, 2nd, 4th, 8th ... are shown, with their number. */
    void (*log)(const struct bl_host *host, int32_t level, const char *format, ...);
    /* Fills err and returns -1: `return host->fail(host, err, "...")`. */
    int32_t (*fail)(const struct bl_host *host, struct bl_error *err, const char *format, ...);

    /* 64-byte aligned, zeroed host memory; NULL when there is none. release(NULL) is fine. */
    void *(*allocate)(const struct bl_host *host, uint64_t bytes);
    void (*release)(const struct bl_host *host, void *pointer);

    /* body(argument, i) for i in [0, n), in any order, on all threads; returns when all are done.
     * For bits that do not depend on the thread count let i be a block of fixed size and combine
     * the blocks' results in index order afterwards. */
    void (*parallel_for)(const struct bl_host *host, uint64_t n,
                         void (*body)(void *argument, uint64_t i), void *argument);

    /* A number for this step's row of metrics. The name is copied. */
    void (*metric)(const struct bl_host *host, const char *name, double value);

    /* Sums n doubles over the parts of the batch, in rank order; values holds the sum everywhere.
     * With one part they are left as they are. */
    int32_t (*all_reduce)(const struct bl_host *host, double *values, uint64_t n,
                          struct bl_error *err);

    /* Counter-based: the same (run.seed, stream, counter) gives the same 64 bits everywhere. */
    uint64_t (*random)(const struct bl_host *host, uint64_t stream, uint64_t counter);

    /* fp64 sums of fixed 4096-element blocks in index order: sum x^2 and sum a b. */
    double (*sum_squares)(const struct bl_host *host, const struct bl_tensor *x);
    double (*dot)(const struct bl_host *host, const struct bl_tensor *a, const struct bl_tensor *b);

    /* Parameters by index (0 ... tensor_count - 1, in the order of the parameter table) or name.
     * Returns 0, or -1 when there is no such tensor or array (now); out->size must be set. With
     * a sharded optimizer there are no state arrays, and a gradient is fetched from the other
     * processes: ask in the op's own thread, never inside parallel_for.
     * Writing through the view is for guards and projections only. */
    uint64_t (*tensor_count)(const struct bl_host *host);
    int32_t (*tensor)(const struct bl_host *host, uint64_t index, uint32_t which,
                      struct bl_tensor *out);
    int32_t (*find)(const struct bl_host *host, const char *name, uint32_t which,
                    struct bl_tensor *out);
    /* ||update||^2 of parameter `index` in this step, NaN when nobody asked (BL_NEED_UPDATES). */
    double (*update_squares)(const struct bl_host *host, uint64_t index);
    /* The reduction of this step's gradients, of one group of tensors (BL_GROUP_COUNT: all of them
     * together). Returns 0, or -1 when it was not measured (BL_MONITOR_REDUCTION) or the group has
     * no gradient. */
    int32_t (*reduction)(const struct bl_host *host, uint32_t group, struct bl_reduction *out);
    const char *instance; /* name of this instance: the plugin's, or `name` of its group */
};

/* Every ops struct begins with these four.
 *   create   options is the struct that the option table describes, filled and validated; it
 *            outlives the instance. Sets *self (may be NULL when there is no state). 0 or -1.
 *   destroy  gets whatever create set. NULL = nothing to free.
 *   save     writes the state into buffer if capacity suffices; returns the bytes needed.
 *            NULL = no state in checkpoints.
 *   load     the reverse; refuses (-1) what it does not understand.
 */
#define BL_COMMON_OPS                                                                              \
    int32_t (*create)(const struct bl_host *host, const void *options, void **self,                \
                      struct bl_error *err);                                                       \
    void (*destroy)(void *self);                                                                   \
    uint64_t (*save)(const void *self, void *buffer, uint64_t capacity);                           \
    int32_t (*load)(void *self, const void *buffer, uint64_t bytes, struct bl_error *err)

struct bl_common_ops {
    BL_COMMON_OPS;
};

/* ---- descriptor: the members up to ops_size never move -------------------------------------- */
struct bl_plugin {
    uint32_t magic; /* BL_PLUGIN_MAGIC */
    uint16_t abi_major;
    uint16_t abi_minor; /* of the headers it was built with; must be <= the host's */
    uint32_t size;      /* sizeof(struct bl_plugin) */
    uint32_t kind;      /* BL_KIND_... */
    uint32_t ops_size;
    uint32_t devices; /* bits of BL_DEVICE_... */
    const char *name; /* "z_loss": with the kind it makes the file name regularizer_z_loss.so */
    const char *version;
    const char *build; /* for messages, never compared */
    const struct bl_option *options;
    uint64_t options_size; /* sizeof the options struct */
    const void *ops;       /* struct bl_<kind>_ops */
    /* Options at which an instance does nothing, "key=value" joined by ','; the host then skips
     * what would change bits (gradients, transforms, projections, scaling) and still logs the
     * value. NULL: not applicable. */
    const char *null_setting;
};

#if defined(__GNUC__)
#define BL_EXPORT __attribute__((visibility("default")))
#else
#define BL_EXPORT
#endif

#ifdef __cplusplus
#define BL_PLUGIN_LINKAGE extern "C"
#else
#define BL_PLUGIN_LINKAGE extern
#endif

/* Defines the descriptor. `null_setting` may be NULL. A C++ file gets a symbol that is exported. */
#define BL_PLUGIN(kind_, name_, version_, devices_, ops_, options_, options_size_, null_setting_)  \
    BL_PLUGIN_LINKAGE BL_EXPORT const struct bl_plugin ballast_plugin_v1;                          \
    const struct bl_plugin ballast_plugin_v1 = {                                                   \
        BL_PLUGIN_MAGIC, BL_ABI_MAJOR,           BL_ABI_MINOR, (uint32_t)sizeof(struct bl_plugin), \
        kind_,           (uint32_t)sizeof(ops_), devices_,     name_,                              \
        version_,        BL_BUILD_TEXT,          options_,     options_size_,                      \
        &(ops_),         null_setting_}

#ifndef BL_BUILD_TEXT
#if defined(__clang__)
#define BL_BUILD_TEXT __VERSION__ /* "Clang 14.0.6" */
#elif defined(__GNUC__)
#define BL_BUILD_TEXT "gcc " __VERSION__
#else
#define BL_BUILD_TEXT "unknown compiler"
#endif
#endif

#ifdef __cplusplus
}
#endif
#endif
