#include "config/presets.h"

#include <string.h>

#include "config/internal.h"

/* Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", table 2, with the
 * vocabulary, the context and the heads of the published checkpoints. Initialization: section 2.3
 * scales what writes to the residual stream by 1/sqrt(number of residual layers). */
#define GPT2                                                                                       \
    "context = 1024; vocab = 50257; norm = \"layernorm\"; norm_placement = \"pre\";"               \
    "norm_eps = 1e-5; position = \"learned\"; mlp = \"gelu\"; qk_norm = \"off\"; bias = true;"     \
    "tied = true; init = \"gpt2\"; init_std = 0.02;"

/* Touvron et al. 2023, arXiv:2302.13971, section 2.2. */
#define LLAMA                                                                                      \
    "norm = \"rmsnorm\"; norm_placement = \"pre\"; norm_eps = 1e-5; position = \"rope\";"          \
    "mlp = \"swiglu\"; qk_norm = \"off\"; bias = false; init = \"normal\"; init_std = 0.02;"

/* OLMo 2, arXiv:2501.00656, section 3, and the configurations that the authors published
 * (allenai/OLMo, configs/official-1124/OLMo2-7B-stage1.yaml, official-0425/OLMo2-1B-stage1.yaml).
 * They cut the initial weights at three standard deviations; "normal" does not cut. The tokenizer
 * makes 100278 ids; the published tables have 100352 rows, and the published parameter counts and
 * softmax include all of them. */
#define OLMO2                                                                                      \
    "context = 4096; vocab = 100352; norm = \"rmsnorm\"; norm_placement = \"reordered\";"          \
    "norm_eps = 1e-6; position = \"rope\"; rope_theta = 500000.0; mlp = \"swiglu\";"               \
    "qk_norm = \"full\"; bias = false; tied = false; init = \"normal\"; init_std = 0.02;"

/* The two models of the report that bf16 gradient reduction over many nodes makes output logits
 * grow (github.com/allenai/OLMo/issues/514): "125M" and "1.3B" are its names; its blocks and widths
 * as given here make more parameters than that. A GPT-2 block with the output matrix on its own:
 * with tied weights the direction that the loss does not see cannot be told from the embedding's.
 * What the report leaves open: heads of 64, the size that GPT-2 uses at every width, in both, so
 * that attention scores have one scale; context 2048, with which the global batches of 256 and 512
 * sequences are the 0.5M and 1M tokens of Brown et al. 2020 (arXiv:2005.14165, table 2.1) for these
 * two sizes. */
#define SEED                                                                                       \
    "context = 2048; vocab = 50257; norm = \"layernorm\"; norm_placement = \"pre\";"               \
    "norm_eps = 1e-5; position = \"learned\"; mlp = \"gelu\"; qk_norm = \"off\"; bias = true;"     \
    "tied = false; init = \"gpt2\"; init_std = 0.02;"

const struct bl_preset bl_presets[BL_PRESETS] = {
    {"gpt2-124m", "layers = 12; width = 768; heads = 12;" GPT2},
    {"gpt2-355m", "layers = 24; width = 1024; heads = 16;" GPT2},
    {"gpt2-774m", "layers = 36; width = 1280; heads = 20;" GPT2},
    {"gpt2-1558m", "layers = 48; width = 1600; heads = 25;" GPT2},
    /* Llama 3.2 1B (Meta 2024, config.json of the published checkpoint; family: Grattafiori et al.
     * 2024, arXiv:2407.21783) without its scaling of the rotary frequencies: that scaling stretches
     * the 8192 tokens of pretraining to 131072. */
    {"llama-1b", "layers = 16; width = 2048; heads = 32; kv_heads = 8; mlp_width = 8192;"
                 "context = 8192; vocab = 128256; rope_theta = 500000.0; tied = true;" LLAMA},
    /* Llama 2 7B (Touvron et al. 2023, arXiv:2307.09288, and its config.json). */
    {"llama-7b", "layers = 32; width = 4096; heads = 32; mlp_width = 11008;"
                 "context = 4096; vocab = 32000; rope_theta = 10000.0; tied = false;" LLAMA},
    {"olmo2-1b", "layers = 16; width = 2048; heads = 16; mlp_width = 8192;" OLMO2},
    {"olmo2-7b", "layers = 32; width = 4096; heads = 32; mlp_width = 11008;" OLMO2},
    {"seed-125m", "layers = 24; width = 768; heads = 12;" SEED},
    {"seed-1.3b", "layers = 48; width = 2048; heads = 32;" SEED},
};

const struct bl_preset *bl_preset_find(const char *name)
{
    for (size_t i = 0; i < BL_PRESETS; i++)
        if (strcmp(bl_presets[i].name, name) == 0)
            return &bl_presets[i];
    return NULL;
}

/* Numbers compare as numbers: 1 and 1.0 are the same float, 1e-5 and 0.00001 too. */
static int same_value(const struct bl_node *a, const struct bl_node *b)
{
    if (a->type == BL_NODE_STRING || b->type == BL_NODE_STRING)
        return a->type == b->type && strcmp(a->string, b->string) == 0;
    if (a->type == BL_NODE_BOOL || b->type == BL_NODE_BOOL)
        return a->type == b->type && a->integer == b->integer;
    return a->real == b->real;
}

static void add_value(struct bl_text *out, const struct bl_node *node)
{
    if (node->type == BL_NODE_STRING)
        bl_text_quote(out, node->string);
    else if (node->type == BL_NODE_BOOL)
        bl_text_add(out, node->integer ? "true" : "false");
    else if (node->type == BL_NODE_INT)
        bl_text_int(out, node->integer);
    else
        bl_text_float(out, node->real);
}

int bl_preset_overrides(const struct bl_config *c, struct bl_text *out, struct bl_error *err)
{
    const struct bl_preset *p = bl_preset_find(c->model.preset);
    const struct bl_node *group = bl_node_find(c->root, "model");
    struct bl_node *keys = NULL;
    if (p == NULL)
        return 0;
    if (bl_node_parse_text(p->text, p->name, 0, &keys, err) != 0)
        return -1;
    for (size_t i = 0; i < keys->count; i++) {
        const struct bl_node *key = keys->children[i], *own = bl_node_find(group, key->name);
        if (own == NULL || same_value(own, key))
            continue;
        bl_text_add(out, "  %s = ", key->name);
        add_value(out, own);
        bl_text_add(out, " (preset: ");
        add_value(out, key);
        bl_text_add(out, ")\n");
    }
    bl_node_free(keys);
    return out->failed ? bl_error_set(err, BL_EXIT_FAILED, "configuration: out of memory") : 0;
}
