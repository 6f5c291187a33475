/* Configuration files as users write them: reading, includes, overrides, refusals, dump. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ballast/precision.h>

#include "config/config.h"

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/ballast-config-XXXXXX");
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return chdir("/") == 0 && system(command) == 0 ? 0 : -1;
}

static void put_bytes(const char *name, const void *bytes, size_t n)
{
    FILE *f = fopen(name, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void put(const char *name, const char *text)
{
    put_bytes(name, text, strlen(text));
}

static struct bl_config *read_text(const char *text, int n, const char *const *override)
{
    struct bl_config *c = NULL;
    struct bl_error err = BL_ERROR_INIT;
    put("t.cfg", text);
    if (bl_config_read("t.cfg", n, (char *const *)(void *)(uintptr_t) override, 1, &c, &err) != 0)
        fail_msg("%s: %s", text, err.text);
    return c;
}

static char *dump(const struct bl_config *c)
{
    struct bl_text t = {0};
    struct bl_error err = BL_ERROR_INIT;
    assert_int_equal(bl_config_dump(c, NULL, NULL, &t, &err), 0);
    return t.text;
}

static void defaults(void **state)
{
    (void)state;
    struct bl_config *c = read_text("run = { };", 0, NULL);
    assert_string_equal(c->run.name, "run");
    assert_string_equal(c->run.dir, "runs");
    assert_int_equal(c->run.seed, 42);
    assert_int_equal(c->run.steps, 2000);
    assert_int_equal(c->run.keep, 3);
    assert_int_equal(c->model.layers, 6);
    assert_int_equal(c->model.width, 384);
    assert_int_equal(c->model.heads, 6);
    assert_int_equal(c->model.kv_heads, 6);
    assert_int_equal(c->model.head_dim, 64);
    assert_int_equal(c->model.mlp_width, 4 * 384);
    assert_int_equal(c->model.init, BL_INIT_GPT2);
    assert_int_equal(c->model.tied, 1);
    assert_int_equal(c->batch.sequences, 32);
    assert_int_equal(c->batch.micro, 8);
    assert_int_equal(c->batch.tokens, 32 * 256);
    assert_true(c->optimizer.lr == 3e-4 && c->optimizer.weight_decay == 0.1);
    assert_int_equal(c->rule_count, 0);
    assert_string_equal(c->data.source, "tokens");
    assert_string_equal(c->source.plugin, "tokens");
    assert_string_equal(c->optimizer_plugin.plugin, "adamw");
    assert_string_equal(c->schedule_plugin.plugin, "cosine");
    assert_string_equal(c->precision_plugin.plugin, "fp32");
    assert_int_equal(c->regularizer_count, 0);
    assert_int_equal(c->guard_count, 0);
    assert_int_equal(c->monitor_count, 2);
    assert_string_equal(c->monitors[0].plugin, "logits");
    assert_string_equal(c->monitors[1].name, "norms");
    assert_int_equal(c->monitors[1].every, 10);
    assert_null(c->monitors[0].node);
    assert_int_equal(c->sink_count, 2);
    assert_string_equal(c->sinks[0].name, "jsonl");
    assert_string_equal(c->sinks[1].name, "console");
    assert_int_equal(c->sinks[0].kind, BL_KIND_SINK);
    assert_int_equal(c->plugin_path.count, 0);
    for (int g = 0; g < 8; g++)
        for (int d = 0; d < 32; d++)
            assert_true(c->dials[g][d] == BL_DIAL_UNSET);
    bl_config_free(c);
    bl_config_free(NULL);

    c = read_text("monitors = ( ); sinks = [ ];", 0, NULL);
    assert_int_equal(c->monitor_count, 0);
    assert_int_equal(c->sink_count, 0);
    bl_config_free(c);
}

static const char everything[] =
    "# three kinds // of comments\n"
    "run = { name = \"demo\"; dir = \"r/\\\"s\\\"\"; seed = 5000000000L; steps = 0x10; };\n"
    "// [ 1, 2 ) is no list here\n"
    "model = { layers = 2; width = 192; heads = 3; mlp = \"swiglu\"; position = \"rope\";\n"
    "          /* several\n lines ( */ context = 64; vocab = 1000; tied = false; bias = False; };\n"
    "data = { source = \"./x/source_synth.so\"; train = [ \"a-*.bin\", \"b[0]#.bin\" ];\n"
    "         entropy = 1; };\n"
    "batch = { tokens = 768; sequences = 0; micro = 5; };\n"
    "cluster = { emulate = 2; };\n"
    "optimizer : { plugin = \"adamw\", betas = [ 0, 0.95 ], lr = 1,\n"
    "   rules = ( { match = \"*norm*\"; weight_decay = 0; }, { match = \"head.*\"; eps = 1e-6;\n"
    "             lr_scale = 2.5; } ) };\n"
    "schedule = { warmup = 200; final = 0.1; warmup_convention = \"tenth\"; };\n"
    "precision = { plugin = \"mixed\"; wire = \"bf16\"; logits = \"bf16\"; attention_output = "
    "\"bf16\";\n"
    "              average = \"predivide\"; matrix = { compute = \"bf16\"; wire = \"fp32\"; };\n"
    "              norm = { arithmetic = \"bf16\"; }; head = { dlogits = \"fp32\"; }; };\n"
    "regularizers = ( { plugin = \"z_loss\"; coefficient = 1e-4; },\n"
    "                 { plugin = \"z_loss\"; name = \"strong\"; coefficient = 1e-2; deep = { a = ( "
    "1, 2.5, ( \"x\" ) ); }; },\n"
    "                 { plugin = \"out/of/tree/regularizer_mine.so\"; } );\n"
    "guards = ( { plugin = \"clip_norm\"; max = 1.0; } );\n"
    "monitors = ( { plugin = \"logits\"; every = 7; } );\n"
    "plugin_path = [ \".\", \"/opt/p\" ];\n";

static void every_group(void **state)
{
    (void)state;
    struct bl_config *c = read_text(everything, 0, NULL);
    assert_string_equal(c->run.dir, "r/\"s\"");
    assert_true(c->run.seed == 5000000000);
    assert_int_equal(c->run.steps, 16);
    assert_int_equal(c->model.head_dim, 64);
    assert_int_equal(c->model.mlp_width, 512); /* 8/3 of 192 */
    assert_int_equal(c->model.tied, 0);
    assert_string_equal(c->data.train.values[1], "b[0]#.bin");
    assert_string_equal(c->source.name, "synth");
    assert_int_equal(c->batch.sequences, 12);
    assert_int_equal(c->batch.micro, 3); /* largest divisor of 12 / 2 that is <= 5 */
    assert_true(c->optimizer.lr == 1);
    assert_int_equal(c->rule_count, 2);
    assert_string_equal(c->rules[0].match, "*norm*");
    assert_true(c->rules[0].weight_decay == 0 && isnan(c->rules[0].eps));
    assert_true(isnan(c->rules[1].weight_decay) && c->rules[1].eps == 1e-6);
    assert_true(c->rules[1].lr_scale == 2.5);
    assert_int_equal(c->schedule.convention, 3);
    assert_int_equal(c->schedule.warmup, 200);

    assert_int_equal(c->dials[BL_GROUP_MATRIX][BL_DIAL_WIRE], BL_FP32);
    assert_int_equal(c->dials[BL_GROUP_NORM][BL_DIAL_WIRE], BL_BF16);
    assert_int_equal(c->dials[BL_GROUP_HEAD][BL_DIAL_WIRE], BL_BF16);
    assert_int_equal(c->dials[BL_GROUP_MATRIX][BL_DIAL_COMPUTE], BL_BF16);
    assert_true(c->dials[BL_GROUP_HEAD][BL_DIAL_COMPUTE] == BL_DIAL_UNSET);
    assert_int_equal(c->dials[BL_GROUP_EMBEDDING][BL_DIAL_AVERAGE], BL_AVERAGE_PREDIVIDE);
    assert_int_equal(c->dials[BL_GROUP_HEAD][BL_DIAL_LOGITS], BL_BF16);
    assert_true(c->dials[BL_GROUP_MATRIX][BL_DIAL_LOGITS] == BL_DIAL_UNSET);
    assert_int_equal(c->dials[BL_GROUP_HEAD][BL_DIAL_DLOGITS], BL_FP32);
    assert_int_equal(c->dials[BL_GROUP_MATRIX][BL_DIAL_ATTENTION_OUTPUT], BL_BF16);
    assert_int_equal(c->dials[BL_GROUP_NORM][BL_DIAL_ARITHMETIC], BL_BF16);

    assert_int_equal(c->regularizer_count, 3);
    assert_string_equal(c->regularizers[0].name, "z_loss");
    assert_string_equal(c->regularizers[1].name, "strong");
    assert_string_equal(c->regularizers[2].name, "mine");
    assert_int_equal(c->monitor_count, 1);
    assert_int_equal(c->monitors[0].every, 7);
    assert_string_equal(c->plugin_path.values[1], "/opt/p");

    /* The keys of a plugin are left to it, with their place. */
    const struct bl_node *n = bl_node_find(c->regularizers[0].node, "coefficient");
    char where[300];
    assert_non_null(n);
    assert_int_equal(n->used, 0);
    assert_string_equal(bl_node_where(n, where), "t.cfg:18");
    assert_string_equal(bl_node_where(bl_node_find(c->schedule_plugin.node, "final"), where),
                        "t.cfg:14");
    assert_int_equal(bl_node_find(c->root, "schedule")->used, 1);
    bl_config_free(c);
}

/* What the dump says is the run: reading it back gives the same dump and the same structs. */
static void dump_round_trip(void **state)
{
    (void)state;
    static const char *const texts[] = {everything, "run = { };",
                                        "model = { preset = \"gpt2-124m\"; layers = 3; };",
                                        "monitors = ( ); sinks = ( ); batch = { tokens = 2560; };"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct bl_config *c = read_text(texts[i], 0, NULL);
        char *first = dump(c);
        struct bl_config *again = read_text(first, 0, NULL);
        char *second = dump(again);
        assert_string_equal(first, second);
        assert_int_equal(c->batch.sequences, again->batch.sequences);
        assert_int_equal(c->batch.micro, again->batch.micro);
        assert_memory_equal(c->dials, again->dials, sizeof c->dials);
        assert_int_equal(c->rule_count, again->rule_count);
        if (i == 0) {
            assert_non_null(strstr(first, "seed = 5000000000L;"));
            assert_non_null(strstr(first, "entropy = 1;"));
            assert_non_null(strstr(first, "dir = \"r/\\\"s\\\"\";"));
            assert_non_null(strstr(first, "coefficient = 0.0001;"));
        }
        free(first);
        free(second);
        bl_config_free(c);
        bl_config_free(again);
    }
}

static void plugin_keys(void *context, const struct bl_instance *i, int indent, struct bl_text *out)
{
    ++*(int *)context;
    bl_text_add(out, "%*sof = \"%s\";\n", indent, "", i->name);
}

static void dump_asks_plugins(void **state)
{
    (void)state;
    struct bl_config *c = read_text("regularizers = ( { plugin = \"a\"; k = 1; } );", 0, NULL);
    struct bl_text t = {0};
    int calls = 0;
    assert_int_equal(bl_config_dump(c, plugin_keys, &calls, &t, NULL), 0);
    assert_int_equal(calls, 4 + 1 + 2 + 2); /* four groups, one regularizer, default lists */
    assert_non_null(strstr(t.text, "        of = \"a\";\n"));
    assert_non_null(strstr(t.text, "    of = \"cosine\";\n"));
    assert_null(strstr(t.text, "k = 1"));
    bl_text_free(&t);
    bl_config_free(c);
}

static void presets(void **state)
{
    (void)state;
    struct bl_config *c = read_text("model = { preset = \"gpt2-124m\"; };", 0, NULL);
    assert_int_equal(c->model.layers, 12);
    assert_int_equal(c->model.width, 768);
    assert_int_equal(c->model.context, 1024);
    assert_int_equal(c->model.vocab, 50257);
    assert_int_equal(c->model.mlp_width, 3072);
    assert_int_equal(c->model.bias, 1);
    bl_config_free(c);
    c = read_text("model = { layers = 4; preset = \"gpt2-124m\"; bias = false; };", 0, NULL);
    assert_int_equal(c->model.layers, 4);
    assert_int_equal(c->model.heads, 12);
    assert_int_equal(c->model.bias, 0);
    bl_config_free(c);
    c = read_text("run = { };", 1, (const char *const[]){"model.preset=gpt2-124m"});
    assert_int_equal(c->model.layers, 12);
    bl_config_free(c);
}

static void includes_and_lines(void **state)
{
    (void)state;
    struct bl_node *root = NULL;
    struct bl_error err = BL_ERROR_INIT;
    char where[300];
    assert_int_equal(mkdir("sub", 0700), 0);
    assert_int_equal(mkdir("sub/deep", 0700), 0);
    put("main.cfg", "a = 1;\n  @include \"sub/one.cfg\" # a comment\nb = 2;\n"
                    "g = {\n@include \"sub/deep/two.cfg\"\n};\nlast = ( 1,\n 2 );");
    put("sub/one.cfg", "\xef\xbb\xbf# one\r\none = \"@include\";\r\n@include \"deep/two.cfg\"");
    put("sub/deep/two.cfg", "\n\ntwo = [ 1, 2.0 ]; /* not closed by\n this: \" */ three = 0xff");
    assert_int_equal(bl_node_read("main.cfg", &root, &err), 0);
    assert_string_equal(bl_node_where(bl_node_find(root, "a"), where), "main.cfg:1");
    assert_string_equal(bl_node_where(bl_node_find(root, "one"), where), "sub/one.cfg:2");
    assert_string_equal(bl_node_where(bl_node_find(root, "two"), where), "sub/deep/two.cfg:3");
    assert_string_equal(bl_node_where(bl_node_find(root, "three"), where), "sub/deep/two.cfg:4");
    assert_string_equal(bl_node_where(bl_node_find(root, "b"), where), "main.cfg:3");
    const struct bl_node *g = bl_node_find(root, "g");
    assert_string_equal(bl_node_where(bl_node_find(g, "two"), where), "sub/deep/two.cfg:3");
    const struct bl_node *last = bl_node_find(root, "last");
    assert_string_equal(bl_node_where(last, where), "main.cfg:7");
    assert_string_equal(bl_node_where(last->children[1], where), "main.cfg:8");
    assert_string_equal(bl_node_find(root, "one")->string, "@include");
    assert_int_equal(bl_node_find(root, "two")->children[0]->type, BL_NODE_INT);
    assert_int_equal(bl_node_find(root, "two")->children[1]->type, BL_NODE_FLOAT);
    bl_node_free(root);

    put("ten0.cfg", "x = 1;");
    for (int i = 1; i <= 11; i++) {
        char name[32], text[64];
        snprintf(name, sizeof name, "ten%d.cfg", i);
        snprintf(text, sizeof text, "@include \"ten%d.cfg\"\n", i - 1);
        put(name, text);
    }
    assert_int_equal(bl_node_read("ten10.cfg", &root, &err), 0);
    bl_node_free(root);
    root = NULL;
    assert_int_equal(bl_node_read("ten11.cfg", &root, &err), -1);
    assert_string_equal(err.text, "ten1.cfg:1: too many includes: at most 10 deep and 1000 in all");
    assert_null(root);
}

static void scanner_keeps_values(void **state)
{
    (void)state;
    struct bl_node *root = NULL;
    struct bl_error err = BL_ERROR_INIT;
    assert_int_equal(
        bl_node_parse(
            "a = -2147483648; b = 2147483647; c = -9223372036854775808L; d = 0x7fffffff;"
            "e = 0xFFFFFFFFFL; f = .5; g = 1.; h = -1e-3; i = \"a\\n\\\"\\x41\\\\\" \"b\";"
            "j = True; k = [ true, \"x\", 1, 2.5, [ ( ) ] ]; l = { }; m-n_* = \"[#//\";",
            "t", &root, &err),
        0);
    assert_true(bl_node_find(root, "a")->integer == INT32_MIN);
    assert_true(bl_node_find(root, "b")->integer == INT32_MAX);
    assert_true(bl_node_find(root, "c")->integer == INT64_MIN);
    assert_true(bl_node_find(root, "d")->integer == INT32_MAX);
    assert_true(bl_node_find(root, "e")->integer == 0xFFFFFFFFF);
    assert_true(bl_node_find(root, "f")->real == 0.5);
    assert_true(bl_node_find(root, "g")->real == 1.0);
    assert_true(bl_node_find(root, "h")->real == -1e-3);
    assert_string_equal(bl_node_find(root, "i")->string, "a\n\"A\\b");
    assert_int_equal(bl_node_find(root, "j")->integer, 1);
    assert_int_equal(bl_node_find(root, "k")->count, 5);
    assert_int_equal(bl_node_find(root, "k")->children[4]->type, BL_NODE_LIST);
    assert_int_equal(bl_node_find(root, "l")->count, 0);
    assert_string_equal(bl_node_find(root, "m-n_*")->string, "[#//");
    assert_null(bl_node_find(root, "zz"));
    bl_node_free(root);
    bl_node_free(NULL);
}

static void decimal_comma(void **state)
{
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "de_DE", "fr_FR.UTF-8"};
    size_t i = 0;
    while (i < 4 && !setlocale(LC_ALL, names[i]))
        i++;
    if (i == 4) {
        print_message("skipped: no locale with a decimal comma is installed\n");
        skip();
    }
    const char *const override[] = {"optimizer.weight_decay=0.25"};
    struct bl_config *c = read_text("optimizer = { lr = 1.5e-3; };", 1, override);
    char *text = dump(c);
    setlocale(LC_ALL, "C");
    assert_true(c->optimizer.lr == 1.5e-3 && c->optimizer.weight_decay == 0.25);
    assert_non_null(strstr(text, "lr = 0.0015;"));
    free(text);
    bl_config_free(c);
}

/* ---- overrides ---- */

static void overrides(void **state)
{
    (void)state;
    static const struct {
        const char *assignment, *dumped; /* a line of the dump afterwards */
    } rows[] = {
        {"run.seed=7", "seed = 7;"},
        {"run.seed=5000000000L", "seed = 5000000000L;"},
        {"run.name=other", "name = \"other\";"},
        {"run.name=\"quoted text\"", "name = \"quoted text\";"},
        {"run.name=2024-run", "name = \"2024-run\";"},
        {"run.name=1; x = 2", "name = \"1; x = 2\";"},
        {"run.name=a=b", "name = \"a=b\";"},
        {"run.name=@include \"t.cfg\"", "name = \"@include \\\"t.cfg\\\"\";"},
        {"optimizer.lr=3e-3", "lr = 0.003;"},
        {"model.tied=false", "tied = false;"},
        {"schedule.final=0.5", "final = 0.5;"},
        {"cluster.emulate=4", "emulate = 4;"},
        {"precision.norm.wire=bf16", "wire = \"bf16\";"},
        {"regularizers[0].coefficient=1e-2", "coefficient = 0.01;"},
        {"regularizers[1].plugin=mu_loss", "plugin = \"mu_loss\";"},
        {"guards[0].plugin=clip_norm", "plugin = \"clip_norm\";"},
        {"guards=({plugin=\"g\";max=2;})", "max = 2;"},
        {"optimizer.rules[0].match=[ab]*", "{ match = \"[ab]*\"; }"},
        {"optimizer.betas=[0,0.5]", "betas = ( 0, 0.5 );"},
        {"optimizer.betas=(0.5,1)", "betas = ( 0.5, 1 );"},
        {"data.train=(\"x.bin\")", "train = ( \"x.bin\" );"},
        {"data.train[0]=y.bin", "train = ( \"y.bin\" );"},
        {"run={name=\"whole\";}", "name = \"whole\";"},
        {"plugin_path=[\"p\"]", "plugin_path = ( \"p\" );"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct bl_config *c = read_text("run = { name = \"n\"; seed = 1; };\n"
                                        "optimizer = { betas = [ 0.1, 0.2 ]; };\n"
                                        "regularizers = ( { plugin = \"z_loss\"; } );",
                                        1, &rows[i].assignment);
        char *text = dump(c);
        if (!strstr(text, rows[i].dumped))
            fail_msg("%s: no %s in\n%s", rows[i].assignment, rows[i].dumped, text);
        free(text);
        bl_config_free(c);
    }

    /* Several, the last wins; a list grows one by one. */
    const char *const many[] = {"run.seed=2", "run.seed=3", "sinks[0].plugin=a",
                                "sinks[1].plugin=b", "sinks[1].name=c"};
    struct bl_config *c = read_text("run = { };", 5, many);
    assert_int_equal(c->run.seed, 3);
    assert_int_equal(c->sink_count, 2);
    assert_string_equal(c->sinks[1].name, "c");
    char where[300];
    assert_string_equal(bl_node_where(c->sinks[1].node, where), "command line: sinks[1].plugin=b");
    bl_config_free(c);
}

static void bad_overrides(void **state)
{
    (void)state;
    static const struct {
        const char *assignment, *hint;
    } rows[] = {
        {"run.seed", "write key.path=value"},
        {"", "write key.path=value"},
        {"=3", "write key.path=value"},
        {"run..seed=1", "no key path"},
        {".run=1", "no key path"},
        {"run.=1", "no key path"},
        {"[0]=1", "no key path"},
        {"guards[=1", "no key path"},
        {"guards[x]=1", "no key path"},
        {"guards[0]x=1", "no key path"},
        {"guards[99999999]=1", "no key path"},
        {"1run=1", "no key path"},
        {"run seed=1", "no key path"},
        {"regularizers[5].plugin=x", "has 1 elements: no [5]; [1] appends one"},
        {"guards[1].plugin=x", "[0] appends one"},
        {"run[0]=1", "run is a group, not a list"},
        {"run.seed.x=1", "run.seed is an integer"},
        {"regularizers.plugin=x", "name an element as in [0]"},
        {"run.sed=1", "unknown key \"sed\"; did you mean \"seed\"?"},
        {"run.seed=1.5", "expects an integer, found the float 1.5"},
        {"run.seed=5000000000", "write 5000000000L"},
        {"run.seed=99999999999999999999", "does not fit"},
        {"run.seed=", "found the string \"\""},
        {"rnu.seed=1", "unknown key \"rnu\"; did you mean \"run\"?"},
        {"run=3", "expects a group"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct bl_config *c = NULL;
        struct bl_error err = BL_ERROR_INIT;
        char *const list[] = {(char *)(uintptr_t)rows[i].assignment};
        put("t.cfg", "run = { seed = 1; };\nregularizers = ( { plugin = \"z_loss\"; } );");
        assert_int_equal(bl_config_read("t.cfg", 1, list, 1, &c, &err), -1);
        assert_null(c);
        assert_int_equal(err.code, BL_EXIT_USAGE);
        if (!strstr(err.text, rows[i].hint) || strncmp(err.text, "command line: ", 14) != 0)
            fail_msg("%s: \"%s\" lacks \"%s\"", rows[i].assignment, err.text, rows[i].hint);
    }
}

/* ---- files that are refused ---- */

struct bad {
    const char *text, *where, *hint;
};

static const struct bad bad_inputs[] = {
    /* text */
    {"", "t.cfg:1", "no settings"},
    {"# nothing\n", "t.cfg:1", "no settings"},
    {"run = {\n seed = 5000000000; };", "t.cfg:2", "does not fit in 32 bits; write 5000000000L"},
    {"run = {\n\n seed = 0x1ffffffff; };", "t.cfg:3", "write 0x1ffffffffL"},
    {"run = { seed = 0x80000000; };", "t.cfg:1", "write 0x80000000L"},
    {"run = { seed = -2147483649; };", "t.cfg:1", "write -2147483649L"},
    {"run = { seed = 9223372036854775808L; };", "t.cfg:1", "64 bits"},
    {"run = { seed = 0xffffffffffffffffL; };", "t.cfg:1", "64 bits"},
    {"run = { seed = 12ab; };", "t.cfg:1", "\"12ab\" is no number"},
    {"run = { seed = 1.5L; };", "t.cfg:1", "\"1.5L\" is no number"},
    {"run = { seed = 1.2.3; };", "t.cfg:1", "no number"},
    {"run = { seed = 1e; };", "t.cfg:1", "no number"},
    {"run = {\n name = demo; };", "t.cfg:2", "needs quotes: \"demo\""},
    {"data = { train = [ a, b ]; };", "t.cfg:1", "needs quotes: \"a\""},
    {"run = { name = \"demo; };\n", "t.cfg:1", "no end on its line"},
    {"run = { name = \"a\\x00b\"; };", "t.cfg:1", "\\x00"},
    {"a = 1;\n/* b = 2;\n", "t.cfg:2", "no end; close it with */"},
    {"run = {\n seed = 1;\n\n", "t.cfg:1", "'{' is never closed"},
    {"run = {\n seed = ( 1 };\n", "t.cfg:2", "'(' was opened at t.cfg:2"},
    {"data = { train = [ \"a\" ); };", "t.cfg:1", "']' is due"},
    {"run = { }; }", "t.cfg:1", "closes nothing"},
    {"run = { };\nrun = { };", "t.cfg:2", "the key \"run\" is in this group already"},
    {"run = { seed = 1;\n seed = 2; };", "t.cfg:2", "the key \"seed\" is in this group already"},
    {"run = { seed 1; };", "t.cfg:1", "syntax error: '1' where '=' is due"},
    {"data = { train = ( \"a\", ); };", "t.cfg:1", "a comma before ')'"},
    {"run = { seed = 1 2; };", "t.cfg:1", "'2' where ';' and the next key is due"},
    {"run = { seed = ; };", "t.cfg:1", "';' where a value is due"},
    {"run = { seed = 1;; };", "t.cfg:1", "';' where a key is due"},
    {"run = { \n\"seed\" = 1; };", "t.cfg:2", "where a key is due"},
    {"data = { train = ( \"a\"\n 1 ); };", "t.cfg:2", "'1' where ',' or the end of the list"},
    {"run = { true = 1; };", "t.cfg:1", "'true' where a key is due"},
    {"run = { };\nmodel =\n\n", "t.cfg:4", "in the middle of a setting"},
    {"run = { };\nmodel", "t.cfg:2", "in the middle of a setting"},
    {"run = { };\n$x = 1;", "t.cfg:2", "unexpected character '$'"},
    {"run = { };\n\xc3\xa4 = 1;", "t.cfg:2", "byte 0xc3"},
    {"\n@include \"none.cfg\"\n", "t.cfg:2", "cannot open none.cfg"},
    {"@include \"t.cfg\"\n", "t.cfg:1", "includes itself"},
    {"@include \"cycle.cfg\"\n", "cycle.cfg:2", "includes itself"},
    {"@include \".\"\n", "t.cfg:1", "a folder"},
    {"@include none\n", "t.cfg:1", "in quotes"},
    {"@include \"good.cfg\" run = { };\n", "t.cfg:1", "nothing may follow"},
    {"@incldue \"good.cfg\"\n", "t.cfg:1", "@include"},
    {"@include \"bad.cfg\"\n", "bad.cfg:3", "unknown key \"sed\""},
    /* groups and keys */
    {"rnu = { };", "t.cfg:1", "unknown key \"rnu\"; did you mean \"run\"?"},
    {"matrix = { };", "t.cfg:1", "unknown key \"matrix\""},
    {"run = ( );", "t.cfg:1", "run: expects a group"},
    {"run = {\n\n sed = 1; };", "t.cfg:3", "run: unknown key \"sed\"; did you mean \"seed\"?"},
    {"run = { steps = 0; };", "t.cfg:1", "steps is 0, outside of [1,inf)"},
    {"run = { seed = 1.5; };", "t.cfg:1", "expects an integer, found the float 1.5"},
    {"run = { backend = \"cuda\"; };", "t.cfg:1", "\"auto\" or \"cpu\""},
    {"run = { name = \"a/b\"; };", "t.cfg:1", "no name of a folder"},
    {"run = { name = \"..\"; };", "t.cfg:1", "no name of a folder"},
    {"run = { name = \"\"; };", "t.cfg:1", "no name of a folder"},
    {"run = { dir = \"\"; };", "t.cfg:1", "dir is empty"},
    /* model */
    {"model = {\n preset = \"gpt2-124\"; };", "t.cfg:2", "did you mean \"gpt2-124m\"?"},
    {"model = { preset = \"zzz\"; };", "t.cfg:1", "there are: gpt2-124m"},
    {"model = { width = 384;\n heads = 7; };", "t.cfg:2", "heads = 6 or 8 would work"},
    {"model = { heads = 6;\n kv_heads = 4; };", "t.cfg:2", "kv_heads = 3 or 6 would work"},
    {"model = { position = \"rope\";\n head_dim = 33; };", "t.cfg:2", "head_dim = 32 or 34"},
    {"model = { layers = 1025; };", "t.cfg:1", "outside of [1,1024]"},
    {"model = { init = \"mup\"; };", "t.cfg:1", "\"normal\", \"gpt2\" or \"mitchell\""},
    {"model = { embedding_scale = 0; };", "t.cfg:1", "outside of (0,inf)"},
    {"model = { preset = \"gpt2-124m\";\n lyers = 2; };", "t.cfg:2", "did you mean \"layers\"?"},
    /* batch */
    {"batch = { tokens = 256;\n sequences = 1; };", "t.cfg:1", "both given"},
    {"batch = { tokens = 0;\n sequences = 0; };", "t.cfg:1", "both 0"},
    {"batch = { tokens = 1000; };", "t.cfg:1", "768 or 1024 would work"},
    {"batch = { tokens = 100; };", "t.cfg:1", "256 or 512 would work"},
    {"cluster = { emulate = 4; };\nbatch = { sequences = 30; };", "t.cfg:2",
     "sequences = 28 or 32 would work, or cluster.emulate = 3 or 5"},
    {"cluster = { emulate = 4; };\nbatch = { tokens = 512; };", "t.cfg:2",
     "tokens = 1024 or 2048 would work"},
    /* plugins */
    {"optimizer = { lr = -1; };", "t.cfg:1", "lr is -1, outside of [0,inf)"},
    {"optimizer = { plugin = \"\"; };", "t.cfg:1", "a plugin's name is due"},
    {"optimizer = { rules = { }; };", "t.cfg:1", "optimizer.rules: expects a list"},
    {"optimizer = { rules = (\n { weight_decay = 0; } ); };", "t.cfg:2", "\"match\" is required"},
    {"optimizer = { rules = (\n { match = \"\"; } ); };", "t.cfg:2", "match is empty"},
    {"optimizer = { rules = ( 3 ); };", "t.cfg:1", "rules[0]: expects a group"},
    {"optimizer = { rules = ( { match = \"a\"; lr = 1; } ); };", "t.cfg:1",
     "unknown key \"lr\"; did you mean \"lr_scale\"?"},
    {"schedule = { warmup_convention = \"last\"; };", "t.cfg:1", "\"next\", \"inclusive\""},
    {"regularizers = { };", "t.cfg:1", "regularizers: expects a list"},
    {"regularizers = ( \"z_loss\" );", "t.cfg:1", "regularizers[0]: expects a group"},
    {"regularizers = (\n { coefficient = 1; } );", "t.cfg:2", "\"plugin\" is required"},
    {"regularizers = ( { plugin = \"z_loss\"; },\n { plugin = \"z_loss\"; } );", "t.cfg:2",
     "(the first: t.cfg:1); give it its own name, as in name = \"z_loss_2\""},
    {"guards = ( { plugin = \"g\"; name = \"a b\"; } );", "t.cfg:1", "cannot name an instance"},
    {"monitors = ( { plugin = \"m\"; every = 0; } );", "t.cfg:1", "every is 0, outside of [1,inf)"},
    {"data = { source = 3; };", "t.cfg:1", "source expects a string"},
    {"data = { train = \"x\"; };", "t.cfg:1", "expects a list of strings"},
    /* precision: what this release does not compute is refused */
    {"precision = { gradient = \"fp16\"; };", "t.cfg:1", "gradient expects \"fp32\" or \"bf16\""},
    {"precision = { master = \"fp16\"; };", "t.cfg:1", "master expects \"fp32\" or \"bf16\""},
    {"precision = { algorithm = \"star\"; };", "t.cfg:1", "\"alltoall\", \"ring\""},
    {"cluster = { protocol = \"tcp\"; };", "t.cfg:1", "\"simple\", \"ll\""},
    {"precision = { sum_rounding = \"kahan\"; };", "t.cfg:1",
     "sum_rounding expects \"nearest\" or \"stochastic\""},
    {"precision = { norm = {\n logits = \"bf16\"; }; };", "t.cfg:2",
     "precision.norm: unknown key \"logits\""},
    {"precision = { matrix = {\n arithmetic = \"bf16\"; }; };", "t.cfg:2", "unknown key"},
    {"precision = { head = 1; };", "t.cfg:1", "head: expects a group"},
    {"precision = {\n head = { wire = \"bf16\"; }; };", "t.cfg:2",
     "write precision.embedding.wire"},
    {"precision = { wire = \"bf16\";\n head = { wire = \"fp32\"; }; };", "t.cfg:2", "tied = false"},
    {"regularizers = ( { plugin = \"z_loss\";\n name = \"ce\"; } );", "t.cfg:2",
     "\"ce\" is taken: loss/ce"},
    {"regularizers = (\n { plugin = \"./regularizer_total.so\"; } );", "t.cfg:2", "loss/total"},
    {"plugin_path = \"x\";", "t.cfg:1", "plugin_path expects a list of strings"},
};

static void refuse_file(const char *where, const char *hint, const char *shown)
{
    struct bl_config *c = NULL;
    struct bl_error err = BL_ERROR_INIT;
    int rc = bl_config_read("t.cfg", 0, NULL, 1, &c, &err);
    if (rc != -1 || c || err.code != BL_EXIT_USAGE)
        fail_msg("%s: rc %d code %d %s", shown, rc, err.code, err.text);
    if (strncmp(err.text, where, strlen(where)) != 0 || err.text[strlen(where)] != ':' ||
        !strstr(err.text, hint) || strchr(err.text, '\n'))
        fail_msg("%s\n  said  %s\n  lacks %s: ... %s", shown, err.text, where, hint);
}

static void bad_files(void **state)
{
    (void)state;
    put("good.cfg", "run = { };\n");
    put("bad.cfg", "run = {\n\n sed = 1; };\n");
    put("cycle.cfg", "\n@include \"t.cfg\"\n");
    for (size_t i = 0; i < sizeof bad_inputs / sizeof bad_inputs[0]; i++) {
        put("t.cfg", bad_inputs[i].text);
        refuse_file(bad_inputs[i].where, bad_inputs[i].hint, bad_inputs[i].text);
    }
}

static void bad_bytes(void **state)
{
    (void)state;
    struct bl_config *c = NULL;
    struct bl_error err = BL_ERROR_INIT;
    put_bytes("t.cfg", "a = 1;\nb\0 = 2;\n", 15);
    refuse_file("t.cfg:2", "a zero byte", "zero byte");

    struct bl_text t = {0};
    bl_text_add(&t, "x = ");
    for (int i = 0; i < 100000; i++)
        bl_text_add(&t, "(");
    put("t.cfg", t.text);
    refuse_file("t.cfg:1", "nested deeper than 64", "deep");
    bl_text_free(&t);

    for (int i = 0; i < 20000; i++)
        bl_text_add(&t, "a%d = %d;\n", i, i);
    put("t.cfg", t.text);
    refuse_file("t.cfg:10001", "more than 10000 settings", "many");
    bl_text_free(&t);

    char *big = malloc((size_t)5 << 20);
    memset(big, ' ', (size_t)5 << 20);
    put_bytes("t.cfg", big, (size_t)5 << 20);
    refuse_file("cannot read t.cfg", "larger than", "big");
    memset(big, '"', (size_t)1 << 20);
    put_bytes("t.cfg", big, (size_t)1 << 20);
    free(big);
    assert_int_equal(bl_config_read("t.cfg", 0, NULL, 1, &c, &err), -1);

    assert_int_equal(bl_config_read("none.cfg", 0, NULL, 1, &c, &err), -1);
    assert_string_equal(err.text, "cannot open none.cfg: No such file or directory");
    assert_int_equal(err.code, BL_EXIT_USAGE);
    assert_int_equal(bl_config_read(".", 0, NULL, 1, &c, &err), -1);
    assert_string_equal(err.text, "cannot read .: it is a folder, not a regular file");
    assert_int_equal(err.code, BL_EXIT_USAGE);
    assert_null(c);
}

/* Every beginning and every one-byte change of a good file ends in a configuration or an error. */
static void damaged_files(void **state)
{
    (void)state;
    static const char poison[] = "\"{}()[]=;#@\\\x80L9.-";
    size_t n = strlen(everything);
    char *text = malloc(n + 1);
    assert_non_null(text);
    for (size_t cut = 0; cut < n; cut++) {
        struct bl_node *root = NULL;
        struct bl_error err = BL_ERROR_INIT;
        memcpy(text, everything, n + 1);
        text[cut] = '\0';
        if (bl_node_parse(text, "cut", &root, &err) != 0)
            assert_true(err.text[0] && err.code == BL_EXIT_USAGE && !root);
        bl_node_free(root);
        root = NULL;
        memcpy(text, everything, n + 1);
        text[cut] = poison[cut % (sizeof poison - 1)];
        if (bl_node_parse(text, "changed", &root, &err) != 0)
            assert_true(err.text[0] && err.code == BL_EXIT_USAGE && !root);
        bl_node_free(root);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(every_group),
        cmocka_unit_test(dump_round_trip),
        cmocka_unit_test(dump_asks_plugins),
        cmocka_unit_test(presets),
        cmocka_unit_test(includes_and_lines),
        cmocka_unit_test(scanner_keeps_values),
        cmocka_unit_test(decimal_comma),
        cmocka_unit_test(overrides),
        cmocka_unit_test(bad_overrides),
        cmocka_unit_test(bad_files),
        cmocka_unit_test(bad_bytes),
        cmocka_unit_test(damaged_files),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
