#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "config/internal.h"
#include "config/schema.h"
#include "lab/lab.h"

static const char usage[] =
    "usage: ballast reduce [OPTION...]\n"
    "\n"
    "The reduction laboratory: adds made-up gradients of W ranks as training would and prints "
    "what\n"
    "is lost, one line a setting:\n"
    "\n"
    "  K      sum over rounded adds of (ranks in the partial sum) / W\n"
    "  error  ||out - g|| / ||g||, g the mean of the unrounded terms in fp64\n"
    "  law    what independent roundings would give: c sqrt(1 + K) for terms of mean zero,\n"
    "         c = 1.67e-3 for bf16; ratio is error / law\n"
    "  bias   <out - g, g> / <g, g>\n"
    "  lost   share of the non-zero addends that left a partial sum as it was\n"
    "  scale  of premultiply: relative error of 1/W in the wire format, part of the bias\n"
    "\n"
    "Lines that begin with # say what the bits depend on.\n"
    "\n"
    "  --ranks LIST           numbers of ranks, default 8,32,128,512\n"
    "  --values LIST          normal, lognormal[:SIGMA] (SIGMA 0.5), ones, cancel (pairs of large\n"
    "                         opposite terms); default normal,lognormal\n"
    "  --algorithm LIST       alltoall, ring, tree, nvls, pairwise, hybrid; default all\n"
    "  --average LIST         divide, divide_first, premultiply, predivide; default divide\n"
    "  --wire FORMAT          of what ranks send: fp32, bf16 or fp16; default bf16\n"
    "  --sum FORMAT           of partial sums, rounded to wire where they travel; default fp32\n"
    "  --sum-rounding KIND    nearest (default) or stochastic\n"
    "  --collective NAME      all_reduce (default) or reduce_scatter\n"
    "  --elements N           length of the buffer, default 65536\n"
    "  --seed N               of the terms and of stochastic rounding, default 42\n"
    "  --ranks-per-node N     default 8\n"
    "  --channels N           default 0: NCCL's rule\n"
    "  --chunk BYTES          of a ring, default 0: NCCL's rule\n"
    "  --protocol NAME        simple (default), ll, ll128: where chunks begin\n"
    "  --tree-pattern N       1 (default), 2 or 3\n"
    "  --threads N            default 0: the processors this process may run on\n"
    "  --order LIST           prints the order in which these elements are summed, nothing else\n"
    "  --compare A,B          two algorithms: the share of elements whose bits differ\n"
    "  --json FILE            writes the numbers there as well\n"
    "  --plot FILE            draws error against W with the laws, as a PNG (needs gnuplot)\n"
    "\n"
    "Lists are separated by commas. `ballast help precision` and `ballast help cluster` describe\n"
    "the keys of the same names.\n";

enum { MOST_WORDS = 6 }; /* algorithms; averages are fewer */
enum { MOST_VALUES = 16 };

struct options {
    struct bl_ints ranks, order;
    struct bl_strings values, algorithm, average, compare;
    int64_t elements, seed, threads;
    int32_t wire, sum, sum_rounding, collective;
    const char *json, *plot;
};

#define OPTION(member_, type_, default_, range_)                                                   \
    {                                                                                              \
#member_, BL_OPTION_##type_, 0, default_, range_, "", offsetof(struct options, member_)    \
    }
static const struct bl_option table[] = {
    OPTION(ranks, INTS, "8,32,128,512", "[1,65536]"),
    OPTION(values, STRINGS, "normal,lognormal", NULL),
    OPTION(algorithm, STRINGS, "all", NULL),
    OPTION(average, STRINGS, "divide", NULL),
    OPTION(wire, CHOICE, "bf16", "fp32|bf16|fp16"),
    OPTION(sum, CHOICE, "fp32", "fp32|bf16|fp16"),
    OPTION(sum_rounding, CHOICE, "nearest", "nearest|stochastic"),
    OPTION(collective, CHOICE, "all_reduce", "all_reduce|reduce_scatter"),
    OPTION(elements, INT, "65536", "[1,1073741824]"),
    OPTION(seed, INT, "42", "[0,inf)"),
    OPTION(threads, INT, "0", "[0,1024]"),
    OPTION(order, INTS, "", "[0,inf)"),
    OPTION(compare, STRINGS, "", NULL),
    OPTION(json, STRING, "", NULL),
    OPTION(plot, STRING, "", NULL),
    {NULL, 0, 0, NULL, NULL, NULL, 0},
};
/* Options whose table is that of the configuration's group. */
static const char *const cluster_keys[] = {"ranks_per_node", "channels", "chunk", "protocol",
                                           "tree_pattern"};

struct command {
    struct bl_node *own, *cluster; /* as written */
    struct bl_options options, cluster_options;
    struct bl_lab_values values[MOST_VALUES];
    uint32_t algorithms[MOST_WORDS], averages[MOST_WORDS];
    struct bl_sum_format format;
    struct bl_lab_setup setup;
};

/* ---- the command line ---- */

/* The row of an option and the tree it is written into; NULL for none. */
static const struct bl_option *find(const struct command *c, const char *key,
                                    struct bl_node **where)
{
    const struct bl_option *o = table;
    size_t i = 0;
    for (; o->key != NULL; o++) {
        if (strcmp(o->key, key) == 0) {
            *where = c->own;
            return o;
        }
    }
    while (i < sizeof cluster_keys / sizeof *cluster_keys && strcmp(cluster_keys[i], key) != 0)
        i++;
    if (i == sizeof cluster_keys / sizeof *cluster_keys)
        return NULL;
    for (o = bl_schema[BL_SCHEMA_CLUSTER].table; strcmp(o->key, key) != 0;)
        o++;
    *where = c->cluster;
    return o;
}

/* The value in libconfig syntax, as its type wants it. */
static void value_text(const struct bl_option *o, const char *value, struct bl_text *out)
{
    int list = o->type == BL_OPTION_INTS || o->type == BL_OPTION_STRINGS;
    int quoted =
        o->type == BL_OPTION_STRINGS || o->type == BL_OPTION_STRING || o->type == BL_OPTION_CHOICE;
    bl_text_add(out, "%s=%s", o->key, list ? "(" : "");
    int64_t whole;
    for (int more = 1; more;) {
        size_t n = list ? strcspn(value, ",") : strlen(value);
        char *piece = bl_format("%.*s", (int)n, value);
        if (piece == NULL)
            out->failed = 1;
        else if (quoted || (list && bl_parse_int(piece, &whole) != 0)) /* refused as a word */
            bl_text_quote(out, piece);
        else
            bl_text_add(out, "%s", piece);
        free(piece);
        more = value[n] == ',';
        value += n + 1;
        bl_text_add(out, "%s", more ? ", " : list ? ")" : "");
    }
}

/* "--sum-rounding=x" -> the row of sum_rounding; the length of the option's name in *n. */
static const struct bl_option *find_word(const struct command *c, const char *word, size_t *n,
                                         struct bl_node **where)
{
    char key[32];
    *n = strcspn(word, "=");
    if (*n < 3 || *n - 2 >= sizeof key || strncmp(word, "--", 2) != 0 ||
        memchr(word, '_', *n) != NULL)
        return NULL;
    snprintf(key, sizeof key, "%.*s", (int)(*n - 2), word + 2);
    for (char *p = key; *p != '\0'; p++)
        *p = *p == '-' ? '_' : *p;
    return find(c, key, where);
}

static int read_words(struct command *c, int argc, char **argv, struct bl_error *err)
{
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        struct bl_node *where = NULL;
        struct bl_text text = {0};
        size_t n;
        const struct bl_option *o = find_word(c, word, &n, &where);
        if (o == NULL)
            return bl_error_set(err, BL_EXIT_USAGE, "unknown option %s; see: ballast reduce --help",
                                word);
        const char *value = word[n] == '=' ? word + n + 1 : i + 1 < argc ? argv[++i] : "";
        if (value[0] == '\0')
            return bl_error_set(err, BL_EXIT_USAGE, "%s needs a value; see: ballast reduce --help",
                                word);
        value_text(o, value, &text);
        int rc = text.failed ? bl_error_set(err, BL_EXIT_FAILED, "out of memory")
                             : bl_node_override(where, text.text, err);
        bl_text_free(&text);
        if (rc != 0)
            return -1;
    }
    return 0;
}

/* ---- words -> setup ---- */

static int read_list(const char *key, const struct bl_strings *words, uint32_t *out, size_t *count,
                     struct bl_error *err)
{
    for (uint64_t i = 0; i < words->count; i++) {
        int value = bl_lab_find(key, words->values[i]);
        if (value < 0)
            return bl_error_set(err, BL_EXIT_USAGE,
                                "%s is no %s of a reduction; see: ballast reduce --help",
                                words->values[i], key);
        for (size_t k = 0; k < *count; k++)
            if (out[k] == (uint32_t)value)
                return bl_error_set(err, BL_EXIT_USAGE, "%s %s is there twice", key,
                                    words->values[i]);
        out[(*count)++] = (uint32_t)value;
    }
    return 0;
}

static int read_algorithms(struct command *c, const struct options *o, struct bl_error *err)
{
    static const uint32_t all[] = {BL_ALGORITHM_RING,   BL_ALGORITHM_TREE,
                                   BL_ALGORITHM_NVLS,   BL_ALGORITHM_PAIRWISE,
                                   BL_ALGORITHM_HYBRID, BL_ALGORITHM_ALLTOALL};
    struct bl_lab_setup *s = &c->setup;
    if (o->compare.count > 0) {
        if (read_list("algorithm", &o->compare, c->algorithms, &s->algorithm_count, err) != 0)
            return -1;
        return s->algorithm_count == 2
                   ? 0
                   : bl_error_set(err, BL_EXIT_USAGE, "--compare takes two algorithms: A,B");
    }
    s->all = o->algorithm.count == 1 && strcmp(o->algorithm.values[0], "all") == 0;
    if (!s->all)
        return read_list("algorithm", &o->algorithm, c->algorithms, &s->algorithm_count, err);
    memcpy(c->algorithms, all, sizeof all);
    s->algorithm_count = sizeof all / sizeof *all;
    return 0;
}

static int read_setup(struct command *c, const struct options *o, struct bl_error *err)
{
    static const uint32_t dtype[] = {BL_FP32, BL_BF16, BL_FP16};
    struct bl_lab_setup *s = &c->setup;
    c->format = (struct bl_sum_format){.wire = dtype[o->wire],
                                       .sum = dtype[o->sum],
                                       .collective = (uint32_t)o->collective,
                                       .sum_rounding = (uint32_t)o->sum_rounding};
    *s = (struct bl_lab_setup){.cluster = c->cluster_options.values,
                               .format = &c->format,
                               .ranks = o->ranks.values,
                               .ranks_count = o->ranks.count,
                               .algorithms = c->algorithms,
                               .averages = c->averages,
                               .values = c->values,
                               .elements = (uint64_t)o->elements,
                               .seed = (uint64_t)o->seed};
    if (o->values.count > MOST_VALUES)
        return bl_error_set(err, BL_EXIT_USAGE, "--values: at most %d kinds", MOST_VALUES);
    for (; s->value_count < o->values.count; s->value_count++)
        if (bl_lab_values_read(o->values.values[s->value_count], &c->values[s->value_count], err) !=
            0)
            return -1;
    if (read_algorithms(c, o, err) != 0)
        return -1;
    return read_list("average", &o->average, c->averages, &s->average_count, err);
}

/* ---- what it does ---- */

static int print_order(const struct command *c, const struct bl_ints *elements,
                       struct bl_error *err)
{
    struct bl_text text = {0};
    int rc = 0;
    for (uint64_t i = 0; rc == 0 && i < elements->count; i++)
        rc = bl_lab_order(&c->setup, (uint64_t)elements->values[i], &text, err);
    if (rc == 0)
        fputs(text.text, stdout);
    bl_text_free(&text);
    return rc;
}

static int measure(struct command *c, const struct options *o, struct bl_error *err)
{
    struct bl_lab_result result = {0};
    struct bl_backend *backend = NULL;
    if (bl_backend_cpu((uint32_t)o->threads, "auto", &backend, err) != 0)
        return -1;
    c->setup.backend = backend;
    int rc = o->compare.count > 0 ? bl_lab_compare(&c->setup, &result, err)
                                  : bl_lab_run(&c->setup, &result, err);
    if (rc == 0)
        bl_lab_print(&c->setup, &result, stdout);
    if (rc == 0 && o->json[0] != '\0')
        rc = bl_lab_json(&c->setup, &result, o->json, err);
    if (rc == 0 && o->plot[0] != '\0')
        rc = bl_lab_plot(&c->setup, &result, o->plot, err);
    bl_lab_free(&result);
    bl_backend_destroy(backend);
    return rc;
}

int bl_cmd_reduce(int argc, char **argv, struct bl_error *err)
{
    struct command c = {0};
    int rc = -1;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            fputs(usage, stdout);
            return 0;
        }
    }
    const struct bl_schema *cluster = &bl_schema[BL_SCHEMA_CLUSTER];
    if (bl_node_parse("", "command line", &c.own, err) != 0 ||
        bl_node_parse("", "command line", &c.cluster, err) != 0 ||
        read_words(&c, argc, argv, err) != 0 ||
        bl_options_fill(&c.options, table, sizeof(struct options), c.own, NULL, "reduce", err) !=
            0 ||
        bl_options_fill(&c.cluster_options, cluster->table, cluster->size, c.cluster, NULL,
                        "reduce", err) != 0)
        goto done;
    const struct options *o = c.options.values;
    if (read_setup(&c, o, err) != 0)
        goto done;
    if (o->compare.count > 0 && o->plot[0] != '\0')
        bl_error_set(err, BL_EXIT_USAGE, "--compare has no figure; leave --plot out");
    else if (o->order.count > 0 && (o->json[0] != '\0' || o->plot[0] != '\0'))
        bl_error_set(err, BL_EXIT_USAGE, "--order only prints; leave --json and --plot out");
    else
        rc = o->order.count > 0 ? print_order(&c, &o->order, err) : measure(&c, o, err);
done:
    bl_options_free(&c.options);
    bl_options_free(&c.cluster_options);
    bl_node_free(c.own);
    bl_node_free(c.cluster);
    return rc;
}
