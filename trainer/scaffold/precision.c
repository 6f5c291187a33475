/* precision my_plugin: working weights and activations of the hidden matrices in one format.
 *
 * A precision policy fills a table of dials, one for each group of tensors (matrix, embedding,
 * norm, head); <ballast/precision.h> lists them. The table arrives with everything fp32, nearest,
 * divide, all_reduce, alltoall: write only what differs. A dial that the configuration writes wins
 * over the table. */
#include <ballast/precision.h>

enum { FP32, BF16 };

struct options {
    int32_t working; /* index of the word in the range */
};

static const struct bl_option table[] = {
    {"working", BL_OPTION_CHOICE, 0, "bf16", "fp32|bf16",
     "format of the hidden matrices' working weights and activations",
     offsetof(struct options, working)},
    {NULL, 0, 0, NULL, NULL, NULL, 0},
};

/* The options outlive the instance, so an instance without other state is its options. */
static int32_t create(const struct bl_host *host, const void *options, void **self,
                      struct bl_error *err)
{
    (void)host;
    (void)err;
    *self = (void *)(uintptr_t)options;
    return 0;
}

static void fill(const void *self, struct bl_precision *dials)
{
    const struct options *o = self;
    dials->dial[BL_GROUP_MATRIX][BL_DIAL_COMPUTE] = o->working == BF16 ? BL_BF16 : BL_FP32;
}

static const struct bl_precision_ops ops = {.create = create, .fill = fill};

BL_PLUGIN(BL_KIND_PRECISION, "my_plugin", "0.1", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, table,
          sizeof(struct options), NULL);
