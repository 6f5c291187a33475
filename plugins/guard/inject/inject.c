/* guard inject: breaks the gradient, or a weight, in stated steps, so that guards can be scored.
 *
 *     what = "scale"   the gradient is multiplied by `factor`, in place
 *     what = "nan"     one element becomes NaN
 *     what = "flip"    one bit of one element is inverted
 *
 * steps    steps in which it acts, 1-based as in rows of metrics; default none: never
 * factor   of scale, default 50
 * where    array of nan and flip: gradient (default) or weight
 * tensor   parameter of nan and flip; default "": the first of the parameter table
 * element  index in it, row-major, default 0
 * bit      of flip: 0, lowest of the mantissa, to 31, the sign; default 30, the exponent's highest
 *
 * Put it first in the list: later guards see what it did. A broken weight is one of the master
 * weights and of the working copy; the step's own gradient was computed before.
 *
 * Metric: guard/<instance>/active, 1 in steps in which it acts, else 0: the truth that spike/flag
 * of skip_step and optim/skipped are compared with. Each injection is logged.
 *
 * Why: processors that compute wrong without noticing are a fact in large fleets (Dixit et al.
 * 2021, arXiv:2102.11245), and a guard that has never been seen to act is a hope.
 *
 * Cost: none outside of its steps.
 *
 * What it cannot do: reach monitors, which look at the gradient before guards do; break what is on
 * the wire between ranks; break the data (that is a source's part). A flipped weight of a group
 * whose master is bf16 is rounded with the next update.
 */
#include <string.h>

#include <ballast/guard.h>

#include "../blocks.h"

enum what { SCALE, NOT_A_NUMBER, FLIP };

struct options {
    struct bl_ints steps;
    double factor;
    int64_t element, bit;
    const char *tensor;
    int32_t what, where;
};

static const struct bl_option options[] = {
    {"steps", BL_OPTION_INTS, 0, "", "[1,inf)", "steps in which it acts",
     offsetof(struct options, steps)},
    {"what", BL_OPTION_CHOICE, 0, "scale", "scale|nan|flip", "what it does",
     offsetof(struct options, what)},
    {"factor", BL_OPTION_FLOAT, 0, "50", "[0,1e30]", "of scale", offsetof(struct options, factor)},
    {"where", BL_OPTION_CHOICE, 0, "gradient", "gradient|weight", "array of nan and flip",
     offsetof(struct options, where)},
    {"tensor", BL_OPTION_STRING, 0, "", NULL, "parameter of nan and flip; empty: the first",
     offsetof(struct options, tensor)},
    {"element", BL_OPTION_INT, 0, "0", "[0,inf)", "element of the tensor, row-major",
     offsetof(struct options, element)},
    {"bit", BL_OPTION_INT, 0, "30", "[0,31]", "bit of the element, of flip",
     offsetof(struct options, bit)},
    {0}};

static int32_t create(const struct bl_host *host, const void *values, void **self,
                      struct bl_error *err)
{
    (void)host;
    (void)err;
    *self = (void *)(uintptr_t)values;
    return 0;
}

static int acts(const struct options *o, uint64_t step)
{
    for (uint64_t i = 0; i < o->steps.count; i++)
        if ((uint64_t)o->steps.values[i] == step)
            return 1;
    return 0;
}

/* The element's bits before and after, for the log. */
static void change(const struct options *o, float *element, uint32_t bits[2])
{
    memcpy(&bits[0], element, sizeof(bits[0]));
    bits[1] = o->what == FLIP ? bits[0] ^ (uint32_t)1 << o->bit : 0x7fc00000u;
    memcpy(element, &bits[1], sizeof(bits[1]));
}

static int32_t gradient(void *self, const struct bl_host *host, const struct bl_guard_input *in,
                        struct bl_verdict *out, uint32_t *changed, struct bl_error *err)
{
    const struct options *o = self;
    struct bl_tensor t = {.size = sizeof(t)};
    uint32_t which = o->where ? BL_WEIGHT : BL_GRADIENT, bits[2];
    int active = acts(o, in->step), named = o->tensor[0] != '\0';
    bl_guard_metric(host, "active", active);
    (void)out;
    if (!active)
        return 0;
    if (o->what == SCALE) {
        for (uint64_t i = 0; i < host->tensor_count(host); i++) {
            if (host->tensor(host, i, BL_GRADIENT, &t) < 0)
                return host->fail(host, err, "tensor %llu has no gradient", (unsigned long long)i);
            bl_guard_scale(host, &t, o->factor);
        }
        *changed = BL_CHANGED_GRADIENT;
        host->log(host, BL_LOG_INFO, "step %llu: the gradient is multiplied by %g",
                  (unsigned long long)in->step, o->factor);
        return 0;
    }
    if ((named ? host->find(host, o->tensor, which, &t) : host->tensor(host, 0, which, &t)) < 0)
        return host->fail(host, err, "there is no parameter \"%s\": `ballast check` lists them",
                          o->tensor);
    if ((uint64_t)o->element >= t.count)
        return host->fail(host, err, "element = %lld is beyond the %llu elements of %s",
                          (long long)o->element, (unsigned long long)t.count, t.name);
    change(o, (float *)t.data + o->element, bits);
    *changed = o->where ? BL_CHANGED_WEIGHT : BL_CHANGED_GRADIENT;
    host->log(host, BL_LOG_INFO, "step %llu: element %lld of the %s of %s: bits %08x become %08x",
              (unsigned long long)in->step, (long long)o->element,
              o->where ? "weights" : "gradient", t.name, (unsigned)bits[0], (unsigned)bits[1]);
    return 0;
}

static const struct bl_guard_ops ops = {.create = create, .gradient = gradient};

BL_PLUGIN(BL_KIND_GUARD, "inject", "1.0", BL_DEVICE_CPU, ops, options, sizeof(struct options),
          NULL);
