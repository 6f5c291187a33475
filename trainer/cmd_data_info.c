/* data info and data verify: the same look at the same files, printed for two questions. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strings.h"
#include "cmd.h"
#include "data/paths.h"
#include "data/shard_scan.h"

static const char info_usage[] =
    "usage: ballast data info [--context N] [--format NAME] [--quick] FILE...\n"
    "\n"
    "Says what token shards hold: format, bits of an id, tokens, bytes, the vocabulary where the\n"
    "header has it, the smallest and the largest id. FILE may be a quoted glob, as in a config.\n"
    "\n"
    "  --context N     also counts sequences of N tokens (model.context)\n"
    "  --format NAME   auto (default), llmc, npy, raw16 or raw32, as data.format\n"
    "  --quick         looks at headers only, not at every id\n"
    "\n"
    "Exit code 4 when a file is no whole token shard.\n";

static const char verify_usage[] =
    "usage: ballast data verify [--format NAME] [--vocab N] FILE...\n"
    "\n"
    "Checks the structure of every file and the range of every id, and goes on after a bad file.\n"
    "FILE may be a quoted glob, as in a config.\n"
    "\n"
    "  --format NAME   auto (default), llmc, npy, raw16 or raw32, as data.format\n"
    "  --vocab N       ids must be below N (model.vocab); default: what the header says\n"
    "\n"
    "Prints a line for each file; exit code 4 when one is bad.\n";

typedef unsigned long long ull;

struct request {
    const char *command;
    int verify, quick;
    enum bl_shard_format format;
    uint64_t context, vocab;
    struct bl_paths paths;
    struct bl_shard_report *reports; /* (paths.count,) */
};

/* --name VALUE or --name=VALUE at argv[*at]: 1 and the value (NULL when there is none), else 0. */
static int is_option(const char *name, int argc, char **argv, int *at, const char **value)
{
    size_t length = strlen(name);

    if (strncmp(argv[*at], name, length) != 0)
        return 0;
    if (argv[*at][length] == '=') {
        *value = argv[*at] + length + 1;
        return 1;
    }
    if (argv[*at][length] != '\0')
        return 0;
    *value = *at + 1 < argc ? argv[++*at] : NULL;
    return 1;
}

static int take_count(const struct request *r, const char *name, const char *text, uint64_t *out,
                      struct bl_error *err)
{
    int64_t n;

    if (!text || bl_parse_int(text, &n) != 0 || n < 1 || n > (int64_t)INT32_MAX + 1)
        return bl_error_set(err, BL_EXIT_USAGE,
                            "%s %s: a whole number from 1 to 2^31; see: ballast %s --help", name,
                            text ? text : "", r->command);
    *out = (uint64_t)n;
    return 0;
}

static int parse(struct request *r, int argc, char **argv, struct bl_error *err)
{
    const char *value;
    int plain = 0;

    for (int i = 1; i < argc; i++) {
        if (plain || argv[i][0] != '-' || argv[i][1] == '\0') {
            if (bl_paths_add(&r->paths, r->command, argv[i], err) != 0)
                return -1;
        } else if (strcmp(argv[i], "--") == 0) {
            plain = 1;
        } else if (is_option("--format", argc, argv, &i, &value)) {
            if (!value || bl_shard_format_parse(value, &r->format) != 0)
                return bl_error_set(err, BL_EXIT_USAGE,
                                    "--format %s: auto, llmc, npy, raw16 or raw32",
                                    value ? value : "");
        } else if (!r->verify && is_option("--context", argc, argv, &i, &value)) {
            if (take_count(r, "--context", value, &r->context, err) != 0)
                return -1;
        } else if (r->verify && is_option("--vocab", argc, argv, &i, &value)) {
            if (take_count(r, "--vocab", value, &r->vocab, err) != 0)
                return -1;
        } else if (!r->verify && strcmp(argv[i], "--quick") == 0) {
            r->quick = 1;
        } else {
            return bl_error_set(err, BL_EXIT_USAGE, "unknown option %s; see: ballast %s --help",
                                argv[i], r->command);
        }
    }
    if (r->paths.count == 0)
        return bl_error_set(err, BL_EXIT_USAGE, "%s needs a FILE; see: ballast %s --help",
                            r->command, r->command);
    bl_paths_sort(&r->paths);
    return 0;
}

/* ---- tables: every cell is text, columns are as wide as their widest cell ---- */

enum { CELL = 24, COLUMNS = 8 };

struct table {
    size_t columns;
    char head[COLUMNS][CELL];
    int width[COLUMNS], path_width;
};

/* The cells of a file; "-" where there is nothing to say. */
static void fill(const struct request *r, const struct bl_shard_report *f,
                 char cells[COLUMNS][CELL])
{
    const struct bl_shard_layout *l = &f->layout;
    int known = l->width > 0;
    size_t c = 0;

    for (size_t i = 0; i < COLUMNS; i++)
        strcpy(cells[i], "-");
    if (known) {
        snprintf(cells[0], CELL, "%s", bl_shard_format_name(l->format));
        snprintf(cells[1], CELL, "%u", 8 * l->width);
        snprintf(cells[2], CELL, "%" PRIu64, l->items);
    }
    c = 3;
    if (!r->verify)
        snprintf(cells[c++], CELL, "%" PRIu64, f->size);
    if (l->vocab > 0)
        snprintf(cells[c], CELL, "%" PRIu64, l->vocab);
    c++;
    if (!r->quick) {
        if (f->scanned) {
            snprintf(cells[c], CELL, "%" PRIu64, f->smallest);
            snprintf(cells[c + 1], CELL, "%" PRIu64, f->largest);
        }
        c += 2;
    }
    if (r->context && known)
        snprintf(cells[c], CELL, "%" PRIu64, l->items > 0 ? (l->items - 1) / r->context : 0);
}

static void make_head(const struct request *r, struct table *t)
{
    const char *head[COLUMNS];
    size_t c = 0;

    head[c++] = "format";
    head[c++] = "bits";
    head[c++] = "tokens";
    if (!r->verify)
        head[c++] = "bytes";
    head[c++] = "vocab";
    if (!r->quick) {
        head[c++] = "smallest";
        head[c++] = "largest";
    }
    if (r->context)
        head[c++] = "sequences";
    t->columns = c;
    for (size_t i = 0; i < c; i++)
        snprintf(t->head[i], CELL, "%s", head[i]);
}

static void print_row(const struct table *t, const char *path, char cells[COLUMNS][CELL],
                      const char *verdict)
{
    printf("%-*s", t->path_width, path);
    for (size_t c = 0; c < t->columns; c++)
        printf("  %*s", t->width[c], cells[c]);
    printf("%s%s\n", verdict[0] ? "  " : "", verdict);
}

static void print_table(const struct request *r)
{
    struct table t = {.path_width = 4};
    char cells[COLUMNS][CELL];

    make_head(r, &t);
    for (size_t c = 0; c < t.columns; c++)
        t.width[c] = (int)strlen(t.head[c]);
    for (size_t i = 0; i < r->paths.count; i++) {
        int length = (int)strlen(r->paths.items[i]);
        t.path_width = length > t.path_width ? length : t.path_width;
        fill(r, &r->reports[i], cells);
        for (size_t c = 0; c < t.columns; c++)
            if ((int)strlen(cells[c]) > t.width[c])
                t.width[c] = (int)strlen(cells[c]);
    }
    print_row(&t, "file", t.head, r->verify ? "result" : "");
    for (size_t i = 0; i < r->paths.count; i++) {
        const struct bl_shard_report *f = &r->reports[i];
        fill(r, f, cells);
        print_row(&t, f->path, cells, f->why[0] ? f->why : r->verify ? "ok" : "");
    }
}

/* Totals of the good files; what matters for a run but is no fault of a file goes here too. */
static void print_totals(const struct request *r)
{
    uint64_t tokens = 0, bytes = 0, sequences = 0, good = 0, unchecked = 0;
    uint64_t smallest = UINT64_MAX, largest = 0;
    unsigned widths = 0;
    char human[32], human_bytes[32];

    for (size_t i = 0; i < r->paths.count; i++) {
        const struct bl_shard_report *f = &r->reports[i];
        if (f->why[0])
            continue;
        good++;
        tokens += f->layout.items;
        bytes += f->size;
        widths |= f->layout.width;
        unchecked += !r->vocab && !f->layout.vocab;
        if (r->context && f->layout.items > 0)
            sequences += (f->layout.items - 1) / r->context;
        if (f->scanned) {
            smallest = f->smallest < smallest ? f->smallest : smallest;
            largest = f->largest > largest ? f->largest : largest;
        }
    }
    if (good == 0)
        return;
    printf("total: %llu %sfile%s, %llu tokens (%s), %llu bytes (%s)", (ull)good,
           good < r->paths.count ? "good " : "", good == 1 ? "" : "s", (ull)tokens,
           bl_human((double)tokens, human), (ull)bytes, bl_human((double)bytes, human_bytes));
    if (smallest <= largest)
        printf(", ids %llu ... %llu", (ull)smallest, (ull)largest);
    if (r->context)
        printf(", %llu sequences of %llu", (ull)sequences, (ull)r->context);
    putchar('\n');
    if (widths == (2 | 4))
        puts("note: ids of 16 and of 32 bits, which cannot stand in one split of a run");
    if (r->verify && unchecked > 0)
        printf("note: %llu file%s not say how large the vocabulary is; give --vocab N to check "
               "the ids\n",
               (ull)unchecked, unchecked == 1 ? " does" : "s do");
}

/* One line for any number of bad files. */
static int judge(const struct request *r, struct bl_error *err)
{
    const struct bl_shard_report *first = NULL;
    size_t bad = 0;

    for (size_t i = 0; i < r->paths.count; i++) {
        if (!r->reports[i].why[0])
            continue;
        first = first ? first : &r->reports[i];
        bad++;
    }
    if (bad == 0)
        return 0;
    if (r->paths.count == 1)
        return bl_error_set(err, BL_EXIT_DATA, "%s: %s", first->path, first->why);
    return bl_error_set(err, BL_EXIT_DATA, "%zu of %zu files are bad, the first is %s: %s", bad,
                        r->paths.count, first->path, first->why);
}

static int look(struct request *r, int argc, char **argv, struct bl_error *err)
{
    const char *usage = r->verify ? verify_usage : info_usage;
    int answer = -1;

    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(usage, stdout);
            return 0;
        }
    }
    if (parse(r, argc, argv, err) != 0)
        goto done;
    r->reports = calloc(r->paths.count, sizeof(*r->reports));
    if (!r->reports) {
        bl_error_set(err, BL_EXIT_FAILED, "no memory for a list of %zu files", r->paths.count);
        goto done;
    }
    for (size_t i = 0; i < r->paths.count; i++)
        bl_shard_report(r->paths.items[i], r->format, &r->reports[i]);
    if (!r->quick && bl_shard_scan(r->reports, r->paths.count, r->vocab, err) != 0)
        goto done;
    print_table(r);
    print_totals(r);
    answer = judge(r, err);
done:
    free(r->reports);
    bl_paths_free(&r->paths);
    return answer;
}

int bl_cmd_data_info(int argc, char **argv, struct bl_error *err)
{
    struct request r = {.command = "data info"};

    return look(&r, argc, argv, err);
}

int bl_cmd_data_verify(int argc, char **argv, struct bl_error *err)
{
    struct request r = {.command = "data verify", .verify = 1};

    return look(&r, argc, argv, err);
}
