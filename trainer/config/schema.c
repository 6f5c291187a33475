#include "config/schema.h"

#include <stddef.h>

#include <ballast/precision.h>

#define END                                                                                        \
    {                                                                                              \
        NULL, 0, 0, NULL, NULL, NULL, 0                                                            \
    }
#define ROW(struct_, member_, key_, type_, default_, range_, doc_)                                 \
    {                                                                                              \
        key_, BL_OPTION_##type_, 0, default_, range_, doc_, offsetof(struct_, member_)             \
    }

static const struct bl_option root_table[] = {
    {"plugin_path", BL_OPTION_STRINGS, 0, "", NULL, "folders to look for plugins in, first to last",
     0},
    END,
};

#define RUN(member_, type_, default_, range_, doc_)                                                \
    ROW(struct bl_run_options, member_, #member_, type_, default_, range_, doc_)
static const struct bl_option run_table[] = {
    RUN(name, STRING, "run", NULL, "name of the run: a folder inside dir"),
    RUN(dir, STRING, "runs", NULL, "folder that holds the runs"),
    RUN(seed, INT, "42", "[0,inf)", "seed of every random number of the run"),
    RUN(steps, INT, "2000", "[1,inf)", "updates in the whole plan"),
    RUN(eval_every, INT, "0", "[0,inf)", "updates between validations; 0 = only at the end"),
    RUN(eval_tokens, INT, "0", "[0,inf)",
        "at most so many tokens a validation; 0 = the whole split"),
    RUN(checkpoint_every, INT, "0", "[0,inf)", "updates between checkpoints; 0 = only at the end"),
    RUN(keep, INT, "3", "[1,inf)", "checkpoints kept, newest first"),
    RUN(keep_every, INT, "0", "[0,inf)",
        "checkpoints of every so many updates are kept for ever; 0 = none"),
    RUN(ring, INT, "0", "[0,1000]", "recent states kept in checkpoints/ring for a replay"),
    RUN(ring_every, INT, "1", "[1,inf)", "updates between states of the ring"),
    RUN(save, CHOICE, "async", "async|sync",
        "checkpoints are written while training goes on, or before it does"),
    RUN(threads, INT, "0", "[0,1024]", "CPU threads; 0 = as many as the process may use"),
    RUN(backend, CHOICE, "auto", "auto|cpu", "where tensors live and kernels run"),
    END,
};

#define MODEL(member_, type_, default_, range_, doc_)                                              \
    ROW(struct bl_model_options, member_, #member_, type_, default_, range_, doc_)
static const struct bl_option model_table[] = {
    MODEL(preset, STRING, "", NULL, "named set of defaults for this group; \"\" = none"),
    MODEL(layers, INT, "6", "[1,1024]", "transformer blocks"),
    MODEL(width, INT, "384", "[1,65536]", "size of the residual stream"),
    MODEL(heads, INT, "6", "[1,65536]", "attention heads"),
    MODEL(kv_heads, INT, "0", "[0,65536]", "heads of keys and values; 0 = heads"),
    MODEL(head_dim, INT, "0", "[0,65536]", "size of one head; 0 = width / heads"),
    MODEL(mlp_width, INT, "0", "[0,1048576]",
          "hidden size of the MLP; 0 = 4 width (gelu), 8/3 width up to a multiple of 64 (swiglu)"),
    MODEL(context, INT, "256", "[1,1048576]", "tokens a sequence"),
    MODEL(vocab, INT, "0", "[0,16777216]", "token ids are below this; 0 = what the source says"),
    MODEL(vocab_multiple, INT, "64", "[1,65536]",
          "the output matrix gets a multiple of so many rows"),
    MODEL(norm, CHOICE, "layernorm", "layernorm|rmsnorm", "normalization"),
    MODEL(norm_placement, CHOICE, "pre", "pre|post|reordered|peri", "where a block normalizes"),
    MODEL(position, CHOICE, "learned", "learned|rope", "position encoding"),
    MODEL(mlp, CHOICE, "gelu", "gelu|swiglu", "activation of the MLP"),
    MODEL(qk_norm, CHOICE, "off", "off|head|full", "normalization of queries and keys"),
    MODEL(tied, BOOL, "true", NULL, "the output matrix is the embedding"),
    MODEL(bias, BOOL, "true", NULL, "linear layers and layernorms have biases"),
    MODEL(embedding_norm, BOOL, "false", NULL, "normalizes the embedding's output"),
    MODEL(embedding_scale, FLOAT, "1.0", "(0,inf)", "factor on the embedding's output"),
    MODEL(logit_softcap, FLOAT, "0.0", "[0,1e30]", "c tanh(z / c) on the logits; 0 = off"),
    MODEL(attention_softcap, FLOAT, "0.0", "[0,1e30]",
          "c tanh(s / c) on the attention scores; 0 = off"),
    MODEL(init, CHOICE, "gpt2", "normal|gpt2|mitchell", "initialization of the weights"),
    MODEL(init_std, FLOAT, "0.02", "[0,inf)", "standard deviation of the initial weights"),
    MODEL(norm_eps, FLOAT, "1e-5", "[0,inf)", "added to the variance in a norm"),
    MODEL(rope_theta, FLOAT, "10000.0", "(0,inf)", "base of the rotary frequencies"),
    END,
};

#define DATA(member_, type_, default_, range_, doc_)                                               \
    ROW(struct bl_data_options, member_, #member_, type_, default_, range_, doc_)
static const struct bl_option data_table[] = {
    DATA(source, STRING, "tokens", NULL, "source plugin"),
    DATA(train, STRINGS, "", NULL, "patterns of the training files"),
    DATA(validation, STRINGS, "", NULL, "patterns of the validation files"),
    DATA(holdout, FLOAT, "0.0", "[0,0.5]",
         "without validation files: share of the training sequences, the last ones, that is kept "
         "for evaluation"),
    DATA(format, STRING, "auto", NULL, "format of the files; auto = from their headers"),
    END,
};

#define BATCH(member_, type_, default_, range_, doc_)                                              \
    ROW(struct bl_batch_options, member_, #member_, type_, default_, range_, doc_)
static const struct bl_option batch_table[] = {
    BATCH(tokens, INT, "0", "[0,1099511627776]",
          "tokens an update, over all ranks; or give sequences"),
    BATCH(sequences, INT, "0", "[0,16777216]",
          "sequences an update, over all ranks; 32 when tokens is not given either"),
    BATCH(micro, INT, "8", "[1,1048576]",
          "upper bound on the sequences that one rank computes at once"),
    END,
};

static const struct bl_option optimizer_table[] = {
    ROW(struct bl_optimizer_keys, plugin, "plugin", STRING, "adamw", NULL, "optimizer plugin"),
    ROW(struct bl_optimizer_keys, options.lr, "lr", FLOAT, "3e-4", "[0,inf)", "peak learning rate"),
    ROW(struct bl_optimizer_keys, options.weight_decay, "weight_decay", FLOAT, "0.1", "[0,inf)",
        "decoupled weight decay of every parameter; rules make exceptions"),
    END,
};
static const char *const optimizer_also[] = {"rules", NULL};

static const struct bl_option rule_table[] = {
    {"match", BL_OPTION_STRING, BL_OPTION_REQUIRED, NULL, NULL,
     "fnmatch pattern of tensor names; the first rule that matches wins",
     offsetof(struct bl_rule, match)},
    ROW(struct bl_rule, lr_scale, "lr_scale", FLOAT, "1.0", "[0,inf)",
        "factor on the learning rate"),
    ROW(struct bl_rule, weight_decay, "weight_decay", FLOAT, "0.0", "[0,inf)",
        "weight decay instead of the optimizer's"),
    ROW(struct bl_rule, eps, "eps", FLOAT, "1e-8", "(0,inf)", "eps instead of the optimizer's"),
    END,
};

static const struct bl_option schedule_table[] = {
    ROW(struct bl_schedule_keys, plugin, "plugin", STRING, "cosine", NULL, "schedule plugin"),
    ROW(struct bl_schedule_keys, options.warmup, "warmup", INT, "0", "[0,inf)",
        "updates of linear warmup"),
    ROW(struct bl_schedule_keys, options.convention, "warmup_convention", CHOICE, "next",
        "next|inclusive|current|tenth", "what the first updates of the warmup get"),
    END,
};

/* Values that this release does not compute are no words of a choice: they are refused, not
 * ignored. The order of words is the order of the enums in ballast/precision.h. */
#define DIAL(id_, key_, default_, words_, doc_)                                                    \
    {                                                                                              \
        key_, BL_OPTION_CHOICE, 0, default_, words_, doc_,                                         \
            offsetof(struct bl_precision_keys, dial) + sizeof(int32_t) * BL_DIAL_##id_             \
    }
#define DTYPE "fp32|bf16"
#define WIRED "fp32|bf16|fp16"
#define COMMON_DIALS                                                                               \
    DIAL(COMPUTE, "compute", "fp32", DTYPE, "working weights, activations and their gradients"),   \
        DIAL(GRADIENT, "gradient", "fp32", DTYPE, "storage of one micro-batch's weight gradient"), \
        DIAL(ACCUMULATE, "accumulate", "fp32", DTYPE, "sum over a rank's micro-batches"),          \
        DIAL(WIRE, "wire", "fp32", WIRED,                                                          \
             "what a rank's gradient is rounded to before it is sent"),                            \
        DIAL(SUM, "sum", "fp32", WIRED, "partial sums over ranks"),                                \
        DIAL(AVERAGE, "average", "divide", "divide|divide_first|premultiply|predivide",            \
             "where the division by the number of ranks happens"),                                 \
        DIAL(ALGORITHM, "algorithm", "alltoall", "alltoall|ring|tree|nvls|pairwise|hybrid",        \
             "order of the sum over ranks; nvls is a model"),                                      \
        DIAL(COLLECTIVE, "collective", "all_reduce", "all_reduce|reduce_scatter",                  \
             "collective of the gradients"),                                                       \
        DIAL(MASTER, "master", "fp32", DTYPE, "weights that the optimizer updates"),               \
        DIAL(MOMENTS, "moments", "fp32", DTYPE, "state of the optimizer"),                         \
        DIAL(ROUNDING, "rounding", "nearest", "nearest|stochastic|kahan",                          \
             "how weights become what master says"),                                               \
        DIAL(SUM_ROUNDING, "sum_rounding", "nearest", "nearest|stochastic",                        \
             "rounding of each add over ranks")
#define LOGITS DIAL(LOGITS, "logits", "fp32", DTYPE, "what logits are rounded to before the loss")
#define DLOGITS                                                                                    \
    DIAL(DLOGITS, "dlogits", "fp32", DTYPE, "gradient of the logits before the head's products")
#define ATTENTION  DIAL(ATTENTION_OUTPUT, "attention_output", "fp32", DTYPE, "output of attention")
#define ARITHMETIC DIAL(ARITHMETIC, "arithmetic", "fp32", DTYPE, "arithmetic inside a norm")

static const struct bl_option precision_table[] = {
    ROW(struct bl_precision_keys, plugin, "plugin", STRING, "fp32", NULL, "precision plugin"),
    COMMON_DIALS,
    LOGITS,
    DLOGITS,
    ATTENTION,
    ARITHMETIC,
    END,
};
static const struct bl_option matrix_table[] = {COMMON_DIALS, ATTENTION, END};
static const struct bl_option embedding_table[] = {COMMON_DIALS, END};
static const struct bl_option norm_table[] = {COMMON_DIALS, ARITHMETIC, END};
static const struct bl_option head_table[] = {COMMON_DIALS, LOGITS, DLOGITS, END};
static const char *const precision_also[] = {"matrix", "embedding", "norm", "head", NULL};

#define ALL  0xfu
#define HEAD (1u << BL_GROUP_HEAD)
const struct bl_dial_info bl_dials[] = {
    {"compute", BL_DIAL_COMPUTE, ALL, 1},
    {"gradient", BL_DIAL_GRADIENT, ALL, 1},
    {"accumulate", BL_DIAL_ACCUMULATE, ALL, 1},
    {"wire", BL_DIAL_WIRE, ALL, 1},
    {"sum", BL_DIAL_SUM, ALL, 1},
    {"average", BL_DIAL_AVERAGE, ALL, 0},
    {"algorithm", BL_DIAL_ALGORITHM, ALL, 0},
    {"collective", BL_DIAL_COLLECTIVE, ALL, 0},
    {"master", BL_DIAL_MASTER, ALL, 1},
    {"moments", BL_DIAL_MOMENTS, ALL, 1},
    {"rounding", BL_DIAL_ROUNDING, ALL, 0},
    {"sum_rounding", BL_DIAL_SUM_ROUNDING, ALL, 0},
    {"logits", BL_DIAL_LOGITS, HEAD, 1},
    {"dlogits", BL_DIAL_DLOGITS, HEAD, 1},
    {"attention_output", BL_DIAL_ATTENTION_OUTPUT, 1u << BL_GROUP_MATRIX, 1},
    {"arithmetic", BL_DIAL_ARITHMETIC, 1u << BL_GROUP_NORM, 1},
};
const unsigned bl_dial_count = sizeof bl_dials / sizeof bl_dials[0];

#define CLUSTER(member_, type_, default_, range_, doc_)                                            \
    ROW(struct bl_cluster_options, member_, #member_, type_, default_, range_, doc_)
static const struct bl_option cluster_table[] = {
    CLUSTER(emulate, INT, "0", "[0,65536]",
            "this job computes as so many ranks would; 0 = the ranks there are"),
    CLUSTER(ranks_per_node, INT, "8", "[1,65536]",
            "ranks of a node in tree, nvls and hybrid; where W is smaller, W"),
    CLUSTER(channels, INT, "0", "[0,64]", "NCCL channels; 0 = by NCCL's rule, of 16"),
    CLUSTER(chunk, INT, "0", "[0,1073741824]",
            "bytes of a ring's chunk; 0 = by NCCL's rule for the protocol"),
    CLUSTER(buffer, INT, "4194304", "[4096,1073741824]", "NCCL_BUFFSIZE, bytes"),
    CLUSTER(protocol, CHOICE, "simple", "simple|ll|ll128", "NCCL protocol: where chunks begin"),
    CLUSTER(tree_pattern, INT, "1", "[1,3]",
            "where a node's children join its chain: 1 balanced, 2 split, 3 tree"),
    CLUSTER(bucket, INT, "26214400", "[1,inf)",
            "bytes of gradient that one collective sums, in whole tensors"),
    CLUSTER(keep, INT, "1073741824", "[0,inf)",
            "bytes for gradients that are added twice; beyond it they are computed twice"),
    CLUSTER(shard, CHOICE, "none", "none|optimizer", "what is spread over the processes"),
    CLUSTER(timeout, FLOAT, "60.0", "[1,86400]", "seconds until a silent process is lost"),
    CLUSTER(check_every, INT, "100", "[0,inf)",
            "updates between comparisons of the processes' weights; 0 = never"),
    END,
};

#define LIST_ROWS                                                                                  \
    {"plugin",                                                                                     \
     BL_OPTION_STRING,                                                                             \
     BL_OPTION_REQUIRED,                                                                           \
     NULL,                                                                                         \
     NULL,                                                                                         \
     "name of the plugin or its path",                                                             \
     offsetof(struct bl_list_keys, plugin)},                                                       \
        ROW(struct bl_list_keys, name, "name", STRING, "", NULL,                                   \
            "name of the instance; \"\" = the plugin's")
static const struct bl_option list_table[] = {LIST_ROWS, END};
static const struct bl_option monitor_table[] = {
    LIST_ROWS,
    ROW(struct bl_list_keys, every, "every", INT, "1", "[1,inf)", "updates between measurements"),
    END,
};

#define ALARM(member_, key_, type_, default_, range_, doc_)                                        \
    ROW(struct bl_alarm, member_, key_, type_, default_, range_, doc_)
static const struct bl_option alarm_table[] = {
    {"metric", BL_OPTION_STRING, BL_OPTION_REQUIRED, NULL, NULL,
     "fnmatch pattern of metric names, as metrics.jsonl has them",
     offsetof(struct bl_alarm, metric)},
    ALARM(above, "above", FLOAT, "0.0", "(-inf,inf)", "a larger value is outside; no default"),
    ALARM(below, "below", FLOAT, "0.0", "(-inf,inf)", "a smaller value is outside; no default"),
    ALARM(in_a_row, "for", INT, "1", "[1,1000000000]",
          "rows in a row, of those that have the metric, with a value outside"),
    ALARM(from, "from", INT, "1", "[1,inf)", "first step that counts"),
    ALARM(action, "action", CHOICE, "log", "log|checkpoint|stop",
          "a warning; that and a checkpoint; both and the end of the run with exit code 7"),
    END,
};

static const char *const cluster_also[] = {"ring_order", NULL};

static const char *const root_also[] = {
    "run",     "model",        "data",   "batch",    "optimizer", "schedule", "precision",
    "cluster", "regularizers", "guards", "monitors", "sinks",     "alarms",   NULL,
};

const struct bl_schema bl_schema[BL_SCHEMA_COUNT] = {
    [BL_SCHEMA_ROOT] = {"", root_table, sizeof(struct bl_strings), root_also},
    [BL_SCHEMA_RUN] = {"run", run_table, sizeof(struct bl_run_options), NULL},
    [BL_SCHEMA_MODEL] = {"model", model_table, sizeof(struct bl_model_options), NULL},
    [BL_SCHEMA_DATA] = {"data", data_table, sizeof(struct bl_data_options), NULL},
    [BL_SCHEMA_BATCH] = {"batch", batch_table, sizeof(struct bl_batch_options), NULL},
    [BL_SCHEMA_OPTIMIZER] = {"optimizer", optimizer_table, sizeof(struct bl_optimizer_keys),
                             optimizer_also},
    [BL_SCHEMA_RULE] = {"optimizer.rules", rule_table, sizeof(struct bl_rule), NULL},
    [BL_SCHEMA_SCHEDULE] = {"schedule", schedule_table, sizeof(struct bl_schedule_keys), NULL},
    [BL_SCHEMA_PRECISION] = {"precision", precision_table, sizeof(struct bl_precision_keys),
                             precision_also},
    [BL_SCHEMA_PRECISION_MATRIX] = {"precision.matrix", matrix_table,
                                    sizeof(struct bl_precision_keys), NULL},
    [BL_SCHEMA_PRECISION_EMBEDDING] = {"precision.embedding", embedding_table,
                                       sizeof(struct bl_precision_keys), NULL},
    [BL_SCHEMA_PRECISION_NORM] = {"precision.norm", norm_table, sizeof(struct bl_precision_keys),
                                  NULL},
    [BL_SCHEMA_PRECISION_HEAD] = {"precision.head", head_table, sizeof(struct bl_precision_keys),
                                  NULL},
    [BL_SCHEMA_CLUSTER] = {"cluster", cluster_table, sizeof(struct bl_cluster_options),
                           cluster_also},
    [BL_SCHEMA_LIST] = {"regularizers, guards, sinks", list_table, sizeof(struct bl_list_keys),
                        NULL},
    [BL_SCHEMA_MONITOR] = {"monitors", monitor_table, sizeof(struct bl_list_keys), NULL},
    [BL_SCHEMA_ALARM] = {"alarms", alarm_table, sizeof(struct bl_alarm), NULL},
};

#define LIST(group_, kind_, schema_, member_)                                                      \
    {                                                                                              \
#group_, BL_KIND_##kind_, schema_, offsetof(struct bl_config, group_),                     \
            offsetof(struct bl_config, member_##_count)                                            \
    }
const struct bl_list_info bl_lists[4] = {
    LIST(regularizers, REGULARIZER, BL_SCHEMA_LIST, regularizer),
    LIST(guards, GUARD, BL_SCHEMA_LIST, guard),
    LIST(monitors, MONITOR, BL_SCHEMA_MONITOR, monitor),
    LIST(sinks, SINK, BL_SCHEMA_LIST, sink),
};
