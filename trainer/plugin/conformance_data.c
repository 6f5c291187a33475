/* Checks of what reads and writes files: sinks, sources, tokenizers. */
#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/random.h"
#include "plugin/trial.h"

/* ---- sink -------------------------------------------------------------------------------------*/

enum { MANY = 500 };

struct record {
    char names[MANY][40];
    const char *pointers[MANY];
    double values[MANY];
    struct bl_record r;
};

static void make_record(struct record *m, uint64_t step, uint64_t count)
{
    for (uint64_t k = 0; k < count; k++) {
        snprintf(m->names[k], sizeof m->names[k], k == 0 ? "loss/total" : "check/metric_%llu",
                 (unsigned long long)k);
        m->pointers[k] = m->names[k];
        m->values[k] = bl_trial_normal(80, step * MANY + k);
    }
    m->r = (struct bl_record){.size = sizeof m->r,
                              .attempt = 1,
                              .step = step,
                              .time = 1.7e9 + (double)step,
                              .count = count,
                              .names = m->pointers,
                              .values = m->values};
}

static enum bl_outcome check_sink(struct bl_trial *t)
{
    struct bl_plugin_instance *i = NULL;
    struct bl_error err = BL_ERROR_INIT;
    enum bl_outcome outcome = bl_trial_instance(t, &i);
    if (outcome != BL_CHECK_OK)
        return outcome;
    struct record *m = calloc(1, sizeof *m);
    BL_EXPECT(t, m != NULL, "no memory");
    static const uint64_t counts[] = {3, 0, 1, 20, MANY};
    for (uint64_t step = 1; step <= 20; step++) {
        make_record(m, step, counts[step % 5]);
        if (m->r.count > 1) {
            m->values[0] = step % 3 == 0 ? NAN : m->values[0];
            m->values[1] = step % 2 == 0 ? INFINITY : -INFINITY;
        }
        BL_EXPECT(t, i->ops.sink.write(i->self, &m->r, &err) == 0,
                  "a row of %llu metrics with NaN and infinities: %s",
                  (unsigned long long)m->r.count, err.text);
    }
    if (i->ops.sink.finish != NULL)
        BL_EXPECT(t, i->ops.sink.finish(i->self, &err) == 0, "finish: %s", err.text);
    bl_instance_destroy(i);
    return BL_CHECK_OK;
}

/* Whether the run's folder has a file with something in it. */
static int writes_files(const char *folder)
{
    int found = 0;
    struct stat st;
    DIR *dir = opendir(folder);
    for (struct dirent *d = dir != NULL ? readdir(dir) : NULL; d != NULL; d = readdir(dir))
        found |=
            fstatat(dirfd(dir), d->d_name, &st, 0) == 0 && S_ISREG(st.st_mode) && st.st_size > 0;
    if (dir != NULL)
        closedir(dir);
    return found;
}

/* With no room for files a sink either writes none or says so; it must not crash, and finish and
 * destroy must still work. As in the trainer SIGXFSZ is ignored: write fails with EFBIG. */
static enum bl_outcome check_full(struct bl_trial *t)
{
    const struct rlimit none = {0, RLIM_INFINITY};
    struct bl_plugin_instance *i = NULL;
    struct bl_error err = BL_ERROR_INIT;
    if (t->conformance->verbose)
        return bl_trial_skip(t, "with --verbose the limit would cut what it prints");
    enum bl_outcome outcome = bl_trial_instance(t, &i);
    if (outcome != BL_CHECK_OK)
        return outcome;
    struct record *m = calloc(1, sizeof *m);
    signal(SIGXFSZ, SIG_IGN);
    BL_EXPECT(t, m != NULL && setrlimit(RLIMIT_FSIZE, &none) == 0, "no limit on files");
    int refused = 0;
    for (uint64_t step = 1; step <= 5; step++) {
        make_record(m, step, MANY);
        int rc = i->ops.sink.write(i->self, &m->r, &err);
        BL_EXPECT(t, rc == 0 || err.text[0] != '\0', "write fails without a message");
        refused |= rc != 0;
    }
    if (i->ops.sink.finish != NULL)
        refused |= i->ops.sink.finish(i->self, &err) != 0;
    bl_instance_destroy(i);
    /* The check before this one left what it writes. */
    BL_EXPECT(t, refused || !writes_files(t->directory),
              "the disk is full and neither write nor finish says so");
    return BL_CHECK_OK;
}

const struct bl_check bl_checks_sink[] = {
    {"rows with NaN, infinities and many metrics", check_sink, 0},
    {"a full disk is an error", check_full, 0},
    {NULL, NULL, 0},
};

/* ---- source -----------------------------------------------------------------------------------*/

/* A text and a token file in the layout of llm.c, for a source that needs some. */
static int make_samples(struct bl_trial *t, char *text_path, char *token_path, size_t size)
{
    static const char words[] = "the loss falls while the norm rises and nobody knows why. ";
    uint32_t header[256] = {20240520, 1, 4000};
    uint16_t tokens[4000];
    char text[4000];
    struct bl_error err = BL_ERROR_INIT;
    unsigned char file[sizeof header + sizeof tokens];
    for (size_t k = 0; k < 4000; k++) {
        text[k] = words[k % (sizeof words - 1)];
        tokens[k] = (uint16_t)(bl_random(1, 2, k) % BL_TRIAL_VOCAB);
    }
    memcpy(file, header, sizeof header);
    memcpy(file + sizeof header, tokens, sizeof tokens);
    snprintf(text_path, size, "%s/sample.txt", t->directory);
    snprintf(token_path, size, "%s/sample.bin", t->directory);
    if (access(token_path, F_OK) == 0) /* an instance may have them open */
        return 0;
    return bl_write_file(text_path, text, sizeof text, &err) == 0 &&
                   bl_write_file(token_path, file, sizeof file, &err) == 0
               ? 0
               : -1;
}

/* An instance that has opened the given files, or whatever it accepts. */
static enum bl_outcome open_source(struct bl_trial *t, struct bl_plugin_instance **out,
                                   struct bl_source_info *info)
{
    char text_path[300], token_path[300], reasons[500] = "";
    const struct bl_conformance *c = t->conformance;
    BL_EXPECT(t, make_samples(t, text_path, token_path, sizeof text_path) == 0,
              "no sample files can be written in %s", t->directory);
    const char *text[] = {text_path}, *token[] = {token_path};
    const struct bl_source_files tries[] = {
        {sizeof *tries, 0, (uint64_t)c->data_count, (const char *const *)c->data, "auto"},
        {sizeof *tries, 0, 1, text, "auto"},
        {sizeof *tries, 0, 1, token, "auto"}};
    for (int k = 0; k < (c->data_count > 0 ? 1 : 3); k++) {
        struct bl_error err = BL_ERROR_INIT;
        struct bl_plugin_instance *i = NULL;
        enum bl_outcome outcome = bl_trial_instance(t, &i);
        if (outcome != BL_CHECK_OK)
            return outcome;
        if (i->ops.source.open(i->self, &tries[k], &err) == 0) {
            /* Sequences of the model's context; the vocabulary is the source's own. */
            *info = (struct bl_source_info){.size = sizeof *info};
            i->ops.source.describe(i->self, info);
            *out = i;
            return BL_CHECK_OK;
        }
        BL_EXPECT(t, err.text[0] != '\0', "open refuses files without a message");
        size_t used = strlen(reasons);
        snprintf(reasons + used, sizeof reasons - used, "%s%.150s", used > 0 ? "; " : "", err.text);
        bl_instance_destroy(i);
    }
    if (c->data_count > 0)
        return bl_trial_fail(t, "open: %s", reasons);
    return bl_trial_skip(t, "it opens no made-up file (name some with --data): %s", reasons);
}

enum { CONTEXT = 16, READS = 40, THREADS = 4 };

struct sequence {
    int32_t tokens[CONTEXT], targets[CONTEXT];
};

static uint64_t index_of(const struct bl_source_info *info, uint64_t k)
{
    return k < 2 ? (k == 0 ? 0 : info->sequences - 1) : bl_random(3, 4, k) % info->sequences;
}

static enum bl_outcome check_describe(struct bl_trial *t)
{
    struct bl_plugin_instance *i = NULL;
    struct bl_source_info info;
    t->info.vocab = 0; /* as in a run: the source tells it */
    enum bl_outcome outcome = open_source(t, &i, &info);
    if (outcome != BL_CHECK_OK)
        return outcome;
    BL_EXPECT(t, info.sequences >= 1, "it has no sequences");
    BL_EXPECT(t, info.vocab <= (uint64_t)1 << 31, "a vocabulary of %llu",
              (unsigned long long)info.vocab);
    BL_EXPECT(t, !isinf(info.entropy) && !(info.entropy < 0), "an entropy of %g", info.entropy);
    return BL_CHECK_OK;
}

static enum bl_outcome check_read(struct bl_trial *t)
{
    struct bl_plugin_instance *i = NULL;
    struct bl_source_info info;
    struct sequence all[READS];
    struct bl_error err = BL_ERROR_INIT;
    t->info.vocab = 0;
    enum bl_outcome outcome = open_source(t, &i, &info);
    if (outcome != BL_CHECK_OK)
        return outcome;
    uint64_t vocab = info.vocab > 0 ? info.vocab : (uint64_t)1 << 31;
    for (uint64_t k = 0; k < READS; k++) {
        memset(&all[k], 0xa5, sizeof all[k]);
        BL_EXPECT(t,
                  i->ops.source.read(i->self, index_of(&info, k), vocab, all[k].tokens,
                                     all[k].targets, &err) == 0,
                  "sequence %llu: %s", (unsigned long long)index_of(&info, k), err.text);
        for (unsigned p = 0; p < CONTEXT; p++) {
            int32_t token = all[k].tokens[p], target = all[k].targets[p];
            BL_EXPECT(t, token >= 0 && (uint64_t)token < vocab,
                      "token %d at position %u of sequence %llu; ids are 0 ... %llu", (int)token, p,
                      (unsigned long long)index_of(&info, k), (unsigned long long)(vocab - 1));
            BL_EXPECT(t, target >= -1 && (target < 0 || (uint64_t)target < vocab),
                      "target %d at position %u of sequence %llu", (int)target, p,
                      (unsigned long long)index_of(&info, k));
            BL_EXPECT(t, p == 0 || all[k].targets[p - 1] == -1 || all[k].targets[p - 1] == token,
                      "sequence %llu: target %u is %d, and the next token is %d",
                      (unsigned long long)index_of(&info, k), p - 1, (int)all[k].targets[p - 1],
                      (int)token);
        }
    }
    struct bl_plugin_instance *other = NULL;
    outcome = open_source(t, &other, &info);
    if (outcome != BL_CHECK_OK)
        return outcome;
    for (uint64_t k = READS; k-- > 0;)
        for (int which = 0; which < 2; which++) {
            struct sequence s;
            struct bl_plugin_instance *from = which == 0 ? i : other;
            BL_EXPECT(t,
                      from->ops.source.read(from->self, index_of(&info, k), vocab, s.tokens,
                                            s.targets, &err) == 0,
                      "%s", err.text);
            BL_EXPECT(t, memcmp(&s, &all[k], sizeof s) == 0, "sequence %llu is another one %s",
                      (unsigned long long)index_of(&info, k),
                      which == 0 ? "when read again" : "in another instance");
        }
    return BL_CHECK_OK;
}

static enum bl_outcome check_past_end(struct bl_trial *t)
{
    struct bl_plugin_instance *i = NULL;
    struct bl_source_info info;
    struct sequence s;
    struct bl_error err = BL_ERROR_INIT;
    t->info.vocab = 0;
    enum bl_outcome outcome = open_source(t, &i, &info);
    if (outcome != BL_CHECK_OK)
        return outcome;
    if (info.vocab > 1) {
        int refused = 0;
        for (uint64_t k = 0; k < READS && !refused; k++)
            refused =
                i->ops.source.read(i->self, index_of(&info, k), 1, s.tokens, s.targets, &err) != 0;
        BL_EXPECT(t, refused,
                  "%d sequences are read with a vocabulary of 1, though it has %llu ids", READS,
                  (unsigned long long)info.vocab);
        BL_EXPECT(t, err.text[0] != '\0',
                  "an id beyond the vocabulary is refused without a message");
    }
    return BL_CHECK_OK;
}

struct reader {
    struct bl_plugin_instance *instance;
    const struct bl_source_info *info;
    uint64_t vocab;
    struct sequence *out;
    unsigned turn;
    int failed;
};

static void *read_some(void *argument)
{
    struct reader *r = argument;
    struct bl_error err = BL_ERROR_INIT;
    for (unsigned round = 0; round < 20; round++)
        for (uint64_t k = 0; k < READS; k++) {
            uint64_t at = (k + r->turn * 7) % READS;
            r->failed |=
                r->instance->ops.source.read(r->instance->self, index_of(r->info, at), r->vocab,
                                             r->out[at].tokens, r->out[at].targets, &err) != 0;
        }
    return NULL;
}

static enum bl_outcome check_threads(struct bl_trial *t)
{
    struct bl_plugin_instance *i = NULL;
    struct bl_source_info info;
    struct sequence serial[READS], parallel[THREADS][READS];
    struct reader readers[THREADS];
    pthread_t threads[THREADS];
    t->info.vocab = 0;
    enum bl_outcome outcome = open_source(t, &i, &info);
    if (outcome != BL_CHECK_OK)
        return outcome;
    uint64_t vocab = info.vocab > 0 ? info.vocab : (uint64_t)1 << 31;
    struct reader first = {i, &info, vocab, serial, 0, 0};
    read_some(&first);
    BL_EXPECT(t, !first.failed, "a sequence is refused that was read before");
    for (unsigned n = 0; n < THREADS; n++) {
        readers[n] = (struct reader){i, &info, vocab, parallel[n], n, 0};
        BL_EXPECT(t, pthread_create(&threads[n], NULL, read_some, &readers[n]) == 0, "no thread");
    }
    for (unsigned n = 0; n < THREADS; n++)
        pthread_join(threads[n], NULL);
    for (unsigned n = 0; n < THREADS; n++)
        BL_EXPECT(t, !readers[n].failed && memcmp(parallel[n], serial, sizeof serial) == 0,
                  "sequences read by %d threads at once are not those of one thread", THREADS);
    return BL_CHECK_OK;
}

const struct bl_check bl_checks_source[] = {
    {"opens and describes", check_describe, 0},
    {"sequences valid and reproducible", check_read, 0},
    {"ids beyond the vocabulary refused", check_past_end, 0},
    {"read is thread-safe", check_threads, 0},
    {NULL, NULL, 0},
};

/* ---- tokenizer --------------------------------------------------------------------------------*/

static const char *const texts[] = {
    "Hello, world.", "the norm rises and the loss falls", "x = 3 * (y + 4);", "0123456789", "a",
};
enum { TEXTS = sizeof texts / sizeof texts[0], ROOM = 4096 };

static enum bl_outcome encode(struct bl_trial *t, struct bl_plugin_instance *i, const char *text,
                              uint64_t bytes, int32_t ids[ROOM], uint64_t *count)
{
    struct bl_error err = BL_ERROR_INIT;
    BL_EXPECT(t, i->ops.tokenizer.encode(i->self, text, bytes, ids, ROOM, count, &err) == 0,
              "encode \"%.*s\": %s", (int)bytes, text, err.text);
    BL_EXPECT(t, *count <= ROOM, "\"%.*s\" gives %llu ids", (int)bytes, text,
              (unsigned long long)*count);
    return BL_CHECK_OK;
}

static enum bl_outcome check_info(struct bl_trial *t)
{
    struct bl_plugin_instance *i = NULL;
    struct bl_tokenizer_info info = {.size = sizeof info, .end_of_document = -1};
    enum bl_outcome outcome = bl_trial_instance(t, &i);
    if (outcome != BL_CHECK_OK)
        return outcome;
    i->ops.tokenizer.describe(i->self, &info);
    BL_EXPECT(t, info.vocab >= 1 && info.vocab <= (uint64_t)1 << 31, "a vocabulary of %llu",
              (unsigned long long)info.vocab);
    BL_EXPECT(t, info.end_of_document >= -1 && info.end_of_document < (int64_t)info.vocab,
              "end_of_document is %lld in a vocabulary of %llu", (long long)info.end_of_document,
              (unsigned long long)info.vocab);
    return BL_CHECK_OK;
}

static enum bl_outcome check_text(struct bl_trial *t)
{
    struct bl_plugin_instance *i = NULL;
    struct bl_tokenizer_info info = {.size = sizeof info, .end_of_document = -1};
    enum bl_outcome outcome = bl_trial_instance(t, &i);
    if (outcome == BL_CHECK_OK)
        i->ops.tokenizer.describe(i->self, &info);
    for (int k = 0; outcome == BL_CHECK_OK && k < TEXTS; k++) {
        struct bl_error err = BL_ERROR_INIT;
        int32_t ids[ROOM];
        char back[ROOM];
        uint64_t count = 0, bytes = 0, length = strlen(texts[k]);
        outcome = encode(t, i, texts[k], length, ids, &count);
        if (outcome != BL_CHECK_OK)
            break;
        for (uint64_t n = 0; n < count; n++)
            BL_EXPECT(t, ids[n] >= 0 && (uint64_t)ids[n] < info.vocab,
                      "\"%s\" has the id %d in a vocabulary of %llu", texts[k], (int)ids[n],
                      (unsigned long long)info.vocab);
        BL_EXPECT(t, i->ops.tokenizer.decode(i->self, ids, count, back, ROOM, &bytes, &err) == 0,
                  "decode of \"%s\": %s", texts[k], err.text);
        BL_EXPECT(t, bytes == length && memcmp(back, texts[k], length) == 0,
                  "\"%s\" comes back as \"%.*s\"", texts[k], (int)(bytes < 200 ? bytes : 200),
                  back);
    }
    return outcome;
}

static enum bl_outcome check_capacity(struct bl_trial *t)
{
    struct bl_plugin_instance *i = NULL;
    struct bl_error err = BL_ERROR_INIT;
    int32_t ids[ROOM], small[ROOM];
    char back[ROOM];
    uint64_t count = 0, need = 0, bytes = 0, length = strlen(texts[1]);
    enum bl_outcome outcome = bl_trial_instance(t, &i);
    if (outcome == BL_CHECK_OK)
        outcome = encode(t, i, texts[1], length, ids, &count);
    if (outcome != BL_CHECK_OK)
        return outcome;
    const uint64_t rooms[] = {0, count > 0 ? count - 1 : 0};
    for (int k = 0; k < 2 && count > 0; k++) {
        uint64_t capacity = rooms[k];
        memset(small, 0x5a, sizeof small);
        BL_EXPECT(t,
                  i->ops.tokenizer.encode(i->self, texts[1], length, capacity > 0 ? small : NULL,
                                          capacity, &need, &err) == 0 &&
                      need == count,
                  "encode with room for %llu of %llu ids must succeed and give the number needed",
                  (unsigned long long)capacity, (unsigned long long)count);
        for (uint64_t n = 0; n < ROOM; n++)
            BL_EXPECT(t, small[n] == 0x5a5a5a5a, "encode wrote ids into too little room");
    }
    memset(back, 0x5a, sizeof back);
    BL_EXPECT(t,
              i->ops.tokenizer.decode(i->self, ids, count, back, length - 1, &bytes, &err) == 0 &&
                  bytes == length,
              "decode with room for %llu of %llu bytes must succeed and give the number needed",
              (unsigned long long)(length - 1), (unsigned long long)length);
    for (uint64_t k = 0; k < ROOM; k++)
        BL_EXPECT(t, back[k] == 0x5a, "decode wrote text into too little room");
    return BL_CHECK_OK;
}

static enum bl_outcome check_edges(struct bl_trial *t)
{
    struct bl_plugin_instance *i = NULL;
    struct bl_error err = BL_ERROR_INIT;
    struct bl_tokenizer_info info = {.size = sizeof info, .end_of_document = -1};
    int32_t ids[ROOM];
    char back[ROOM];
    uint64_t count = 1, bytes = 1;
    enum bl_outcome outcome = bl_trial_instance(t, &i);
    if (outcome == BL_CHECK_OK)
        outcome = encode(t, i, "", 0, ids, &count);
    if (outcome != BL_CHECK_OK)
        return outcome;
    BL_EXPECT(t, count == 0, "the empty text has %llu ids", (unsigned long long)count);
    BL_EXPECT(t, i->ops.tokenizer.decode(i->self, ids, 0, back, ROOM, &bytes, &err) == 0 && !bytes,
              "no ids give %llu bytes of text", (unsigned long long)bytes);
    i->ops.tokenizer.describe(i->self, &info);
    const int32_t bad[] = {-1, (int32_t)(info.vocab < INT32_MAX ? info.vocab : INT32_MAX)};
    for (int k = 0; k < 2; k++) {
        if (bad[k] >= 0 && (uint64_t)bad[k] < info.vocab)
            continue;
        BL_EXPECT(t, i->ops.tokenizer.decode(i->self, &bad[k], 1, back, ROOM, &bytes, &err) != 0,
                  "decode accepts the id %d in a vocabulary of %llu", (int)bad[k],
                  (unsigned long long)info.vocab);
    }
    return BL_CHECK_OK;
}

const struct bl_check bl_checks_tokenizer[] = {
    {"vocabulary", check_info, 0},
    {"text comes back", check_text, 0},
    {"too little room", check_capacity, 0},
    {"empty text and bad ids", check_edges, 0},
    {NULL, NULL, 0},
};
