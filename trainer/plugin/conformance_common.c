/* Checks that hold for every plugin of every kind. */
#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/schema.h"
#include "plugin/trial.h"

static const struct bl_option no_options[] = {{0}};

static const struct bl_option *table_of(const struct bl_trial *t)
{
    return t->plugin->options != NULL ? t->plugin->options : no_options;
}

/* ---- the file and its table -------------------------------------------------------------------*/

/* The loader has looked at headers, descriptor and constructors when this runs. */
static enum bl_outcome check_file(struct bl_trial *t)
{
    const char *slash = strrchr(t->path, '/');
    const struct bl_plugin *p = t->plugin;
    char expected[200];
    snprintf(expected, sizeof expected, "%s_%s.so", bl_kind_name(p->kind), p->name);
    BL_EXPECT(t, strcmp(slash + 1, expected) == 0,
              "the file is called %s; the trainer looks for %s", slash + 1, expected);
    BL_EXPECT(t, p->version[0] != '\0', "the version is an empty text");
    BL_EXPECT(t, (p->devices & BL_DEVICE_CPU) != 0,
              "devices lacks BL_DEVICE_CPU, and these checks run on the CPU");
    return BL_CHECK_OK;
}

/* 1 when the trial's own keys have this one. */
static int given(const struct bl_trial *t, const char *key)
{
    return bl_node_find(t->config, key) != NULL;
}

static enum bl_outcome check_create(struct bl_trial *t)
{
    struct bl_plugin_instance *i = NULL;
    struct bl_error err = BL_ERROR_INIT;
    for (const struct bl_option *o = table_of(t); o->key != NULL; o++)
        if ((o->flags & BL_OPTION_REQUIRED) != 0 && !given(t, o->key)) {
            bl_trial_fail(t, "option '%s' has no default; add %s=VALUE to the command line (%s)",
                          o->key, o->key, o->doc != NULL ? o->doc : "");
            return BL_CHECK_USAGE;
        }
    if (bl_trial_make(t, NULL, &i, &err) == 0) {
        bl_instance_destroy(i);
        return BL_CHECK_OK;
    }
    bl_trial_fail(t, "%s", err.text);
    return err.code == BL_EXIT_USAGE && t->config->count > 0 ? BL_CHECK_USAGE : BL_CHECK_FAILED;
}

static enum bl_schema_value host_group(uint32_t kind)
{
    switch (kind) {
    case BL_KIND_PRECISION:
        return BL_SCHEMA_PRECISION;
    case BL_KIND_SCHEDULE:
        return BL_SCHEMA_SCHEDULE;
    case BL_KIND_OPTIMIZER:
        return BL_SCHEMA_OPTIMIZER;
    case BL_KIND_SOURCE:
        return BL_SCHEMA_DATA;
    case BL_KIND_MONITOR:
        return BL_SCHEMA_MONITOR;
    case BL_KIND_TOKENIZER:
        return BL_SCHEMA_COUNT; /* stands in no group of a configuration */
    default:
        return BL_SCHEMA_LIST;
    }
}

/* The key is one that the host reads from the group that the plugin stands in. */
static int is_host_key(uint32_t kind, const char *key)
{
    enum bl_schema_value s = host_group(kind);
    if (s == BL_SCHEMA_COUNT)
        return 0;
    for (const struct bl_option *o = bl_schema[s].table; o->key != NULL; o++)
        if (strcmp(o->key, key) == 0)
            return 1;
    for (const char *const *k = bl_schema[s].also; k != NULL && *k != NULL; k++)
        if (strcmp(*k, key) == 0)
            return 1;
    return 0;
}

/* Types, offsets, ranges and defaults are the loader's work, done before. */
static enum bl_outcome check_table(struct bl_trial *t)
{
    const struct bl_option *table = table_of(t);
    if (table[0].key == NULL)
        return bl_trial_skip(t, "it has no options");
    for (const struct bl_option *o = table; o->key != NULL; o++) {
        BL_EXPECT(t, o->doc != NULL && o->doc[0] != '\0', "option '%s' has no doc line", o->key);
        BL_EXPECT(t, strchr(o->doc, '\n') == NULL, "the doc of option '%s' is not one line",
                  o->key);
        BL_EXPECT(t, (o->flags & BL_OPTION_REQUIRED) == 0 || o->default_text == NULL,
                  "option '%s' is required and has a default", o->key);
        BL_EXPECT(t, !is_host_key(t->kind, o->key),
                  "option '%s' is a key of the host in the group of a %s; choose another name",
                  o->key, bl_kind_name(t->kind));
    }
    return BL_CHECK_OK;
}

/* ---- options ----------------------------------------------------------------------------------*/

/* Copies the trial's own keys except `without`, as text; NULL when there is no memory. */
static char *own_keys(struct bl_trial *t, const char *without)
{
    struct bl_plugin_instance *i = NULL;
    struct bl_error err = BL_ERROR_INIT;
    struct bl_text all = {0}, kept = {0};
    if (bl_trial_make(t, NULL, &i, &err) != 0)
        return NULL;
    bl_instance_dump_options(i, 0, &all);
    bl_instance_destroy(i);
    size_t n = strlen(without);
    for (const char *line = all.text; line != NULL && *line != '\0';) {
        size_t length = strcspn(line, "\n");
        if (strncmp(line, without, n) != 0 || n == 0 || line[n] != ' ')
            bl_text_add(&kept, "%.*s\n", (int)length, line);
        line += length + (line[length] == '\n');
    }
    bl_text_add(&kept, "%s", "");
    bl_text_free(&all);
    return kept.failed ? NULL : kept.text;
}

/* An instance of this text; 0, or -1 with err. */
static int make_of_text(struct bl_trial *t, const char *text, struct bl_plugin_instance **out,
                        struct bl_error *err)
{
    struct bl_node *root = NULL;
    if (bl_node_parse(text, "check", &root, err) != 0)
        return -1;
    int rc = bl_trial_make(t, root, out, err);
    bl_node_free(root);
    return rc;
}

static enum bl_outcome check_dump(struct bl_trial *t)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_plugin_instance *i = NULL;
    if (table_of(t)[0].key == NULL)
        return bl_trial_skip(t, "it has no options");
    char *first = own_keys(t, "");
    BL_EXPECT(t, first != NULL, "no memory");
    BL_EXPECT(t, make_of_text(t, first, &i, &err) == 0,
              "its options, as a run's config.cfg stores them, are refused: %s", err.text);
    struct bl_text second = {0};
    bl_instance_dump_options(i, 0, &second);
    BL_EXPECT(t, strcmp(first, second.text != NULL ? second.text : "") == 0,
              "its options, as a run's config.cfg stores them, read back to others");
    return BL_CHECK_OK;
}

static enum bl_outcome check_unknown(struct bl_trial *t)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_plugin_instance *i = NULL;
    char *keys = own_keys(t, "");
    char *text = bl_format("%sno_such_option = 1;", keys != NULL ? keys : "");
    BL_EXPECT(t, text != NULL, "no memory");
    BL_EXPECT(t, make_of_text(t, text, &i, &err) != 0, "'no_such_option = 1' is accepted");
    BL_EXPECT(t, strstr(err.text, "no_such_option") != NULL, "the error names no key: %s",
              err.text);
    return BL_CHECK_OK;
}

static enum bl_outcome check_ranges(struct bl_trial *t)
{
    unsigned tried = 0;
    for (const struct bl_option *o = table_of(t); o->key != NULL; o++) {
        struct bl_error err = BL_ERROR_INIT;
        struct bl_plugin_instance *i = NULL;
        if ((o->type != BL_OPTION_INT && o->type != BL_OPTION_FLOAT) || o->range == NULL)
            continue;
        double low = strtod(o->range + 1, NULL);
        if (!isfinite(low))
            continue;
        if (o->range[0] == '[')
            low -= 1;
        char number[32];
        char *keys = own_keys(t, o->key);
        char *text = o->type == BL_OPTION_INT
                         ? bl_format("%s%s = %lldL;", keys, o->key, (long long)low)
                         : bl_format("%s%s = %s;", keys, o->key, bl_double_text(low, number));
        BL_EXPECT(t, keys != NULL && text != NULL, "no memory");
        BL_EXPECT(t, make_of_text(t, text, &i, &err) != 0, "%s = %g is accepted, its range is %s",
                  o->key, low, o->range);
        tried++;
    }
    return tried > 0 ? BL_CHECK_OK : bl_trial_skip(t, "no number with a lower bound");
}

/* ---- null setting -----------------------------------------------------------------------------*/

/* "key=value,key=value" over the trial's other keys. */
static char *null_text(struct bl_trial *t)
{
    struct bl_node *root = NULL;
    struct bl_error err = BL_ERROR_INIT;
    struct bl_text text = {0};
    for (const char *at = t->plugin->null_setting; *at != '\0';) {
        size_t key = strcspn(at, "="), value = strcspn(at + key + 1, ",");
        const struct bl_option *o = t->plugin->options;
        while (o->key != NULL && (strlen(o->key) != key || strncmp(o->key, at, key) != 0))
            o++;
        const char *quote = o->type == BL_OPTION_STRING || o->type == BL_OPTION_CHOICE ? "\"" : "";
        bl_text_add(&text, "%.*s = %s%.*s%s;\n", (int)key, at, quote, (int)value, at + key + 1,
                    quote);
        at += key + 1 + value;
        at += *at == ',';
    }
    size_t written = text.length;
    char *keys = own_keys(t, "");
    for (const char *line = keys; line != NULL && *line != '\0';) {
        size_t length = strcspn(line, "\n"), key = strcspn(line, " ");
        char *start = bl_format("%.*s ", (int)key, line);
        int there = start == NULL;
        for (const char *at = text.text; at != NULL && !there && at < text.text + written;
             at += strcspn(at, "\n") + 1)
            there = strncmp(at, start, key + 1) == 0;
        if (!there)
            bl_text_add(&text, "%.*s\n", (int)length, line);
        free(start);
        line += length + (line[length] == '\n');
    }
    free(keys);
    if (text.failed || bl_node_parse(text.text, "null setting", &root, &err) != 0)
        return NULL;
    bl_node_free(root);
    return text.text;
}

/* Verdicts of a guard at its null setting leave everything as it is. The terms, transforms and
 * projections of a regularizer are not called by the host then; a transform must still be the
 * identity, or the null setting would not be one. */
static enum bl_outcome check_inert(struct bl_trial *t, struct bl_plugin_instance *i)
{
    if (t->kind == BL_KIND_REGULARIZER) {
        const struct bl_regularizer_ops *o = &i->ops.regularizer;
        float x[3] = {-2, 0.5f, 30}, y[3];
        if (o->coefficient != NULL && o->weight_grad != NULL)
            BL_EXPECT(t, o->coefficient(i->self, 1) == 0, "its coefficient is %g, not 0",
                      o->coefficient(i->self, 1));
        if (o->element != NULL) {
            o->element(i->self, 3, x, y, NULL);
            BL_EXPECT(t, memcmp(x, y, sizeof x) == 0, "its transform changes logits");
        }
        return BL_CHECK_OK;
    }
    if (t->kind != BL_KIND_GUARD)
        return BL_CHECK_OK;
    static const double norms[] = {0, 1e-3, 1, 1e6};
    const struct bl_guard_ops *o = &i->ops.guard;
    uint64_t before = bl_trial_hash(t);
    for (uint64_t k = 0; k < 4; k++) {
        struct bl_error err = BL_ERROR_INIT;
        struct bl_guard_input in = {
            .size = sizeof in, .step = k + 1, .loss = 2, .norm = norms[k], .learning_rate = 1e-3};
        struct bl_verdict a = {.size = sizeof a, .scale = 1}, b = a;
        uint32_t changed = 0;
        if (o->gradient != NULL)
            o->gradient(i->self, &i->host, &in, &a, &changed, &err);
        if (o->update != NULL)
            o->update(i->self, &i->host, &in, &b, &err);
        if (o->settle != NULL)
            o->settle(i->self, 0);
        BL_EXPECT(t, a.scale == 1 && !a.skip && b.scale == 1 && !b.skip,
                  "at norm %g it scales by %g or skips", norms[k],
                  a.scale != 1 ? a.scale : b.scale);
    }
    BL_EXPECT(t, bl_trial_hash(t) == before, "it changed tensors");
    return BL_CHECK_OK;
}

static enum bl_outcome check_null(struct bl_trial *t)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_plugin_instance *i = NULL;
    if (t->plugin->null_setting == NULL)
        return bl_trial_skip(t, "it names none");
    char *text = null_text(t);
    BL_EXPECT(t, text != NULL, "\"%s\" is no list of option=value", t->plugin->null_setting);
    BL_EXPECT(t, make_of_text(t, text, &i, &err) == 0, "{%s} is refused: %s",
              t->plugin->null_setting, err.text);
    BL_EXPECT(t, i->null, "{%s} is not recognised as the null setting", t->plugin->null_setting);
    enum bl_outcome outcome = check_inert(t, i);
    bl_instance_destroy(i);
    return outcome;
}

/* ---- state ------------------------------------------------------------------------------------*/

enum { GUARD_BYTE = 0xa5 };

/* The state of an instance with one byte of guard behind it. */
static unsigned char *saved(const struct bl_plugin_instance *i, uint64_t *bytes)
{
    *bytes = i->ops.common.save(i->self, NULL, 0);
    unsigned char *buffer = malloc(*bytes + 1);
    if (buffer == NULL)
        return NULL;
    memset(buffer, GUARD_BYTE, *bytes + 1);
    if (i->ops.common.save(i->self, buffer, *bytes) != *bytes || buffer[*bytes] != GUARD_BYTE) {
        free(buffer);
        return NULL;
    }
    return buffer;
}

/* Used for a while, so that there is something to save. */
static enum bl_outcome used(struct bl_trial *t, struct bl_plugin_instance **out)
{
    struct bl_error err = BL_ERROR_INIT;
    enum bl_outcome outcome = bl_trial_instance(t, out);
    if (outcome != BL_CHECK_OK)
        return outcome;
    if ((*out)->ops.common.save == NULL)
        return bl_trial_skip(t, "it saves no state");
    BL_EXPECT(t, bl_trial_use(t, *out, 20, &err) == 0, "%s", err.text);
    return BL_CHECK_OK;
}

/* ---- instances --------------------------------------------------------------------------------*/

static enum bl_outcome check_two(struct bl_trial *t)
{
    struct bl_plugin_instance *a = NULL, *b = NULL;
    struct bl_error err = BL_ERROR_INIT;
    for (int order = 0; order < 2; order++) {
        BL_EXPECT(t, bl_trial_make(t, NULL, &a, &err) == 0, "the first: %s", err.text);
        BL_EXPECT(t, bl_trial_make(t, NULL, &b, &err) == 0, "beside another: %s", err.text);
        bl_instance_destroy(order == 0 ? a : b);
        BL_EXPECT(t, bl_trial_use(t, order == 0 ? b : a, 3, &err) == 0,
                  "after the other was destroyed: %s", err.text);
        bl_instance_destroy(order == 0 ? b : a);
    }
    return BL_CHECK_OK;
}

/* What one instance sees does not reach the state of another. */
static enum bl_outcome check_apart(struct bl_trial *t)
{
    struct bl_plugin_instance *a = NULL, *b = NULL;
    uint64_t bytes = 0, again = 0;
    enum bl_outcome outcome = bl_trial_instance(t, &b);
    if (outcome != BL_CHECK_OK)
        return outcome;
    if (b->ops.common.save == NULL)
        return bl_trial_skip(t, "it saves no state");
    unsigned char *before = saved(b, &bytes);
    outcome = used(t, &a);
    if (outcome != BL_CHECK_OK)
        return outcome;
    unsigned char *after = saved(b, &again);
    BL_EXPECT(t, before != NULL && after != NULL, "save wrote other bytes than it said it needs");
    BL_EXPECT(t, again == bytes && memcmp(before, after, bytes) == 0,
              "using one instance changes the state of another");
    return BL_CHECK_OK;
}

/* Heap in use; 0 where the C library or a sanitizer does not tell. */
static size_t heap(void)
{
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
#else
    return 0;
#endif
}

/* A leak grows at every turn. What the C library and others keep for later use (it counts as in use
 * too) comes and goes, so the smallest growth of several windows counts. */
static enum bl_outcome check_memory(struct bl_trial *t)
{
    enum { TURNS = 8, WINDOWS = 5 };
    size_t before = 0, least = SIZE_MAX;
    for (int turn = 0; turn <= TURNS * WINDOWS; turn++) {
        struct bl_plugin_instance *i = NULL;
        struct bl_error err = BL_ERROR_INIT;
        if (turn % TURNS == 0) {
            size_t now = heap(), growth = now > before ? now - before : 0;
            if (turn > TURNS && growth < least) /* the first window fills caches */
                least = growth;
            before = now;
        }
        BL_EXPECT(t, bl_trial_make(t, NULL, &i, &err) == 0, "%s", err.text);
        BL_EXPECT(t, bl_trial_use(t, i, 3, &err) == 0, "%s", err.text);
        bl_instance_destroy(i);
        BL_EXPECT(t, t->live == 0, "%lld blocks of host->allocate are not released by destroy",
                  (long long)t->live);
    }
    BL_EXPECT(t, least < 8 * TURNS, "each instance leaves about %zu bytes of malloc",
              least / TURNS);
    return BL_CHECK_OK;
}

static enum bl_outcome check_roundtrip(struct bl_trial *t)
{
    struct bl_plugin_instance *a = NULL, *b = NULL;
    struct bl_error err = BL_ERROR_INIT;
    uint64_t bytes = 0, again = 0;
    enum bl_outcome outcome = used(t, &a);
    if (outcome != BL_CHECK_OK)
        return outcome;
    unsigned char *state = saved(a, &bytes);
    BL_EXPECT(t, state != NULL, "save wrote other bytes than it said it needs");
    outcome = bl_trial_instance(t, &b);
    if (outcome != BL_CHECK_OK)
        return outcome;
    BL_EXPECT(t, b->ops.common.load(b->self, state, bytes, &err) == 0,
              "load refuses its own state: %s", err.text);
    unsigned char *copy = saved(b, &again);
    BL_EXPECT(t, copy != NULL && again == bytes && memcmp(copy, state, bytes) == 0,
              "%llu bytes of state, loaded and saved again, are not the same bytes",
              (unsigned long long)bytes);
    /* Both must go on alike. */
    BL_EXPECT(t, bl_trial_use(t, a, 5, &err) == 0 && bl_trial_use(t, b, 5, &err) == 0, "%s",
              err.text);
    state = saved(a, &bytes);
    copy = saved(b, &again);
    BL_EXPECT(t, state != NULL && copy != NULL && again == bytes && memcmp(copy, state, bytes) == 0,
              "five steps after loading, its state is not that of an instance that went on");
    return BL_CHECK_OK;
}

static enum bl_outcome check_cut(struct bl_trial *t)
{
    struct bl_plugin_instance *a = NULL, *b = NULL;
    uint64_t bytes = 0;
    enum bl_outcome outcome = used(t, &a);
    if (outcome != BL_CHECK_OK)
        return outcome;
    unsigned char *state = saved(a, &bytes);
    BL_EXPECT(t, state != NULL, "save wrote other bytes than it said it needs");
    if (bytes == 0)
        return bl_trial_skip(t, "its state has no bytes");
    outcome = bl_trial_instance(t, &b);
    if (outcome != BL_CHECK_OK)
        return outcome;
    const uint64_t cuts[] = {0, 1, bytes / 2, bytes - 1};
    for (size_t k = 0; k < sizeof cuts / sizeof cuts[0]; k++) {
        struct bl_error err = BL_ERROR_INIT;
        if (cuts[k] >= bytes)
            continue;
        /* A block of its own, so that reading past the end is seen by the sanitizer. */
        unsigned char *part = malloc(cuts[k] + 1);
        BL_EXPECT(t, part != NULL, "no memory");
        memcpy(part, state, cuts[k]);
        BL_EXPECT(t, b->ops.common.load(b->self, part, cuts[k], &err) != 0,
                  "load accepts %llu of %llu bytes", (unsigned long long)cuts[k],
                  (unsigned long long)bytes);
        BL_EXPECT(t, err.text[0] != '\0', "load refuses cut state without a message");
        free(part);
    }
    return BL_CHECK_OK;
}

static enum bl_outcome check_small(struct bl_trial *t)
{
    struct bl_plugin_instance *a = NULL;
    enum bl_outcome outcome = used(t, &a);
    if (outcome != BL_CHECK_OK)
        return outcome;
    uint64_t bytes = a->ops.common.save(a->self, NULL, 0);
    if (bytes == 0)
        return bl_trial_skip(t, "its state has no bytes");
    unsigned char *buffer = malloc(bytes);
    BL_EXPECT(t, buffer != NULL, "no memory");
    memset(buffer, GUARD_BYTE, bytes);
    BL_EXPECT(t, a->ops.common.save(a->self, buffer, bytes - 1) == bytes,
              "save does not return the bytes it needs when the buffer is too small");
    for (uint64_t k = 0; k < bytes; k++)
        BL_EXPECT(t, buffer[k] == GUARD_BYTE, "save wrote to a buffer that is too small");
    return BL_CHECK_OK;
}

const struct bl_check bl_checks_common[] = {
    {"file", check_file, 1},
    {"create", check_create, 1},
    {"option table", check_table, 0},
    {"options stored and read back", check_dump, 0},
    {"unknown option refused", check_unknown, 0},
    {"option out of range refused", check_ranges, 0},
    {"null setting does nothing", check_null, 0},
    {"two instances", check_two, 0},
    {"instances keep apart", check_apart, 0},
    {"destroy returns all memory", check_memory, 0},
    {"state saved and loaded", check_roundtrip, 0},
    {"cut state refused", check_cut, 0},
    {"small state buffer not written", check_small, 0},
    {NULL, NULL, 0},
};
