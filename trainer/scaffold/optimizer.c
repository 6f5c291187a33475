/* optimizer my_plugin: gradient descent with momentum and decoupled weight decay.
 *
 *     b = momentum b + gradient_scale g          state "momentum", zero at the start
 *     c = -(lr b + lr wd w)                      the change
 *     w = w + update_scale c
 *
 * The trainer hands out ranges [begin, end) of a parameter to its threads, in any order: work on
 * each element by itself, and nothing else. It must give the same bits on every instruction set, so
 * no fused multiply-adds: the pragma below, and one fp32 operation after the other.
 *
 * Guards scale lazily: the gradient is gradient_scale * gradient[i]; an update guard's factor is
 * update_scale, which the state must not see. */
#include <ballast/optimizer.h>

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

struct options {
    double momentum;
};

static const struct bl_option table[] = {
    {"momentum", BL_OPTION_FLOAT, 0, "0.9", "[0,1)", "decay rate of the buffer",
     offsetof(struct options, momentum)},
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

/* fp32 arrays per parameter; the trainer allocates, shards and checkpoints them. */
static uint32_t states(const void *self)
{
    (void)self;
    return 1;
}

static const char *state_name(const void *self, uint32_t i)
{
    (void)self;
    return i == 0 ? "momentum" : NULL;
}

/* The change of element i; *buffer becomes its new state. */
static float change(const struct options *o, const struct bl_update *u, uint64_t i, float *buffer)
{
    const float rate = (float)u->learning_rate;
    const float decay = (float)(u->learning_rate * u->weight_decay);
    *buffer = (float)o->momentum * u->state[0][i] + (float)u->gradient_scale * u->gradient[i];
    return -(rate * *buffer + decay * u->weight[i]);
}

/* Needed beside a guard on updates: sum of squared changes, writes nothing. */
static double prepare(const void *self, const struct bl_update *u, uint64_t begin, uint64_t end)
{
    double sum = 0;
    for (uint64_t i = begin; i < end; i++) {
        float buffer;
        const float after = u->weight[i] + change(self, u, i, &buffer);
        const double d = (double)after - (double)u->weight[i];
        sum += d * d;
    }
    return sum;
}

static void apply(const void *self, const struct bl_update *u, uint64_t begin, uint64_t end)
{
    const float scale = (float)u->update_scale;
    for (uint64_t i = begin; i < end; i++) {
        float buffer;
        const float c = change(self, u, i, &buffer);
        u->state[0][i] = buffer;
        u->weight[i] = u->weight[i] + scale * c;
    }
}

static const struct bl_optimizer_ops ops = {.create = create,
                                            .states = states,
                                            .state_name = state_name,
                                            .prepare = prepare,
                                            .apply = apply};

BL_PLUGIN(BL_KIND_OPTIMIZER, "my_plugin", "0.1", BL_DEVICE_CPU, ops, table, sizeof(struct options),
          NULL);
