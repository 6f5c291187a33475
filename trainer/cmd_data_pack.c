#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/strings.h"
#include "cmd.h"
#include "config/internal.h"
#include "data/pack.h"

static const char usage[] =
    "usage: ballast data pack [OPTION...] OUT_PREFIX INPUT...\n"
    "\n"
    "Makes token shards for data.source = \"tokens\" from text files: OUT_PREFIX-train.bin and\n"
    "OUT_PREFIX-val.bin in llm.c's format, with 16-bit ids for vocabularies up to 65536, else\n"
    "32-bit ids. The same inputs and options give the same bytes for any number of threads.\n"
    "\n"
    "  --tokenizer NAME|PATH  tokenizer plugin, default bytes: every byte is one id\n"
    "  --model FILE           the tokenizer's option model; alone it means --tokenizer\n"
    "                         sentencepiece, for models such as Llama's tokenizer.model\n"
    "  --option KEY=VALUE     another option of the tokenizer (ballast plugins NAME lists them)\n"
    "  --documents KIND       files      each file is a document (default)\n"
    "                         lines      each line that is not empty\n"
    "                         json[:KEY] JSON Lines: the string KEY (default text) of each line\n"
    "  --validation SHARE     part of the input bytes, at the end, that is held out: 0 ... 0.5,\n"
    "                         default 0.1; cut at a line end; 0 = no validation file\n"
    "  --shard-tokens N       shards of N tokens: OUT_PREFIX-train-000000.bin, ...\n"
    "  --threads N            default: the processors this process may run on\n"
    "  --force                replace the outputs of this prefix that exist, all of them\n"
    "\n"
    "After each document stands the tokenizer's end-of-document id. A tokenizer without one keeps\n"
    "the line ends, and one is added between documents where it is missing.\n"
    "\n"
    "A document longer than 32 KiB is encoded in pieces, cut at the last line end that fits, else\n"
    "at the last space or character; the cut that holds out the validation part is one more\n"
    "border. For bytes that changes nothing. A model that merges over line ends does not do so\n"
    "there, and one that puts a space in front of a text does so for each piece. Characters that\n"
    "a model without byte fallback does not know become its <unk>; they are not counted.\n";

static const char hint[] = "see: ballast data pack --help";

struct words { /* the command line */
    const char *tokenizer, *model;
    struct bl_node *options; /* of the tokenizer */
    struct bl_pack pack;
};

static int set_number(const char *option, const char *value, int64_t most, int64_t *out,
                      struct bl_error *err)
{
    if (bl_parse_int(value, out) == 0 && *out >= 1 && *out <= most)
        return 0;
    return bl_error_set(err, BL_EXIT_USAGE, "%s %s: a number in 1 ... %lld; %s", option, value,
                        (long long)most, hint);
}

static int set_documents(struct bl_pack *pack, const char *value, struct bl_error *err)
{
    pack->key = "text";
    if (strcmp(value, "files") == 0)
        pack->documents = BL_DOCUMENTS_FILES;
    else if (strcmp(value, "lines") == 0)
        pack->documents = BL_DOCUMENTS_LINES;
    else if (strcmp(value, "json") == 0)
        pack->documents = BL_DOCUMENTS_JSON;
    else if (strncmp(value, "json:", 5) == 0 && value[5] != '\0') {
        pack->documents = BL_DOCUMENTS_JSON;
        pack->key = value + 5;
    } else
        return bl_error_set(err, BL_EXIT_USAGE,
                            "--documents %s: files, lines, json or json:KEY; %s", value, hint);
    return 0;
}

static int set(struct words *w, const char *option, const char *value, struct bl_error *err)
{
    int64_t number = 0;

    if (strcmp(option, "--tokenizer") == 0)
        w->tokenizer = value;
    else if (strcmp(option, "--model") == 0)
        w->model = value;
    else if (strcmp(option, "--option") == 0)
        return bl_node_override(w->options, value, err);
    else if (strcmp(option, "--documents") == 0)
        return set_documents(&w->pack, value, err);
    else if (strcmp(option, "--validation") == 0) {
        if (bl_parse_double(value, &w->pack.validation) != 0 ||
            !(w->pack.validation >= 0.0 && w->pack.validation <= 0.5))
            return bl_error_set(err, BL_EXIT_USAGE, "--validation %s: a share in 0 ... 0.5; %s",
                                value, hint);
    } else if (strcmp(option, "--shard-tokens") == 0) {
        if (set_number(option, value, INT32_MAX, &number, err) != 0)
            return -1;
        w->pack.shard_tokens = (uint64_t)number;
    } else {
        if (set_number(option, value, BL_PACK_THREADS_MOST, &number, err) != 0)
            return -1;
        w->pack.threads = (unsigned)number;
    }
    return 0;
}

/* Reads argv; what is no option is moved to its front. Answers how many these are, or -1. */
static int read_words(struct words *w, int argc, char **argv, struct bl_error *err)
{
    static const char *const with_value[] = {
        "--tokenizer",  "--model",        "--option",  "--documents",
        "--validation", "--shard-tokens", "--threads", NULL};
    int names = 0;

    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        size_t n = strcspn(word, "="), k = 0;
        char option[32];
        if (strcmp(word, "--") == 0) {
            while (++i < argc)
                argv[names++] = argv[i];
            break;
        }
        if (word[0] != '-' || word[1] == '\0') {
            argv[names++] = argv[i];
            continue;
        }
        if (strcmp(word, "--force") == 0) {
            w->pack.force = 1;
            continue;
        }
        snprintf(option, sizeof(option), "%.*s", (int)(n < 31 ? n : 31), word);
        while (with_value[k] && strcmp(option, with_value[k]) != 0)
            k++;
        if (!with_value[k])
            return bl_error_set(err, BL_EXIT_USAGE, "unknown option %s; %s", word, hint);
        if (word[n] != '=' && i + 1 == argc)
            return bl_error_set(err, BL_EXIT_USAGE, "%s needs a value; %s", word, hint);
        if (set(w, option, word[n] == '=' ? word + n + 1 : argv[++i], err) != 0)
            return -1;
    }
    return names;
}

/* --model FILE: a string whatever is in the name. */
static int set_model(struct words *w, struct bl_error *err)
{
    struct bl_text text = {0};
    int rc;

    if (!w->model)
        return 0;
    bl_text_add(&text, "model=");
    bl_text_quote(&text, w->model);
    rc = text.failed ? bl_error_set(err, BL_EXIT_FAILED, "out of memory")
                     : bl_node_override(w->options, text.text, err);
    bl_text_free(&text);
    return rc;
}

static int load_tokenizer(struct words *w, struct bl_error *err)
{
    const char *name = w->tokenizer ? w->tokenizer : w->model ? "sentencepiece" : "bytes";
    struct bl_instance configured = {
        .kind = BL_KIND_TOKENIZER, .plugin = name, .every = 1, .node = w->options};
    struct bl_strings none = {0, NULL};

    if (set_model(w, err) != 0 ||
        bl_instance_load(&configured, &none, &w->pack.tokenizer, err) != 0)
        return -1;
    return bl_instance_create(w->pack.tokenizer, NULL, err);
}

/* "PREFIX-train.bin (1.23M tokens)" */
static void print_part(const struct bl_pack *pack, int validation, const struct bl_pack_part *part)
{
    int numbered = pack->shard_tokens > 0;
    char *first = bl_pack_name(pack->prefix, validation, numbered, 0);
    char *last = bl_pack_name(pack->prefix, validation, numbered, part->files - 1);
    char tokens[32];

    if (first && last && part->files > 1)
        printf("%s ... %s (%llu files, ", first, last, (unsigned long long)part->files);
    else if (first)
        printf("%s (", first);
    printf("%s tokens)", bl_human((double)part->tokens, tokens));
    free(first);
    free(last);
}

static void print_result(const struct bl_pack *pack, const struct bl_pack_result *r, double seconds)
{
    uint64_t tokens = r->train.tokens + r->validation.tokens;

    printf("wrote ");
    print_part(pack, 0, &r->train);
    if (r->validation.files > 0) {
        printf(" and ");
        print_part(pack, 1, &r->validation);
    }
    printf("\n%llu tokens, %.2f bytes a token, %llu document%s, %.1f MB/s\n",
           (unsigned long long)tokens, (double)r->text_bytes / (double)tokens,
           (unsigned long long)r->documents, r->documents == 1 ? "" : "s",
           (double)r->input_bytes / 1e6 / (seconds > 1e-6 ? seconds : 1e-6));
}

static int pack(struct words *w, int argc, char **argv, struct bl_error *err)
{
    struct bl_pack_result result;
    int names = read_words(w, argc, argv, err);
    double start = bl_clock();

    if (names < 0)
        return -1;
    if (names < 2)
        return bl_error_set(err, BL_EXIT_USAGE,
                            "data pack needs OUT_PREFIX and at least one INPUT; %s", hint);
    size_t length = strlen(argv[0]);
    if (length == 0 || argv[0][length - 1] == '/')
        return bl_error_set(err, BL_EXIT_USAGE,
                            "OUT_PREFIX \"%s\" ends in no name; data/text, for one, makes "
                            "data/text-train.bin; %s",
                            argv[0], hint);
    w->pack.prefix = argv[0];
    w->pack.inputs = (const char *const *)(argv + 1);
    w->pack.count = (size_t)names - 1;
    if (load_tokenizer(w, err) != 0 || bl_data_pack(&w->pack, &result, err) != 0)
        return -1;
    print_result(&w->pack, &result, bl_clock() - start);
    return 0;
}

int bl_cmd_data_pack(int argc, char **argv, struct bl_error *err)
{
    struct words w = {.pack = {.documents = BL_DOCUMENTS_FILES, .validation = 0.1}};
    int rc;

    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(usage, stdout);
            return 0;
        }
    }
    if (bl_node_parse("", "command line", &w.options, err) != 0)
        return -1;
    rc = pack(&w, argc, argv, err);
    bl_instance_destroy(w.pack.tokenizer);
    bl_node_free(w.options);
    return rc;
}
