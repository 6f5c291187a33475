/* monitor my_plugin: the mean spread of a token's logits.
 *
 *     my_plugin/spread   mean over tokens of sqrt(m2 / V), m2 = sum_v (z_v - mean)^2
 *
 * A monitor reads and reports, it changes nothing. observe is called in the steps that `every` in
 * the config asks for, when the gradient is reduced and guards have not run; after, the other op,
 * after the update. In both, host->tensor and host->find give weights, gradients and the
 * optimizer's states.
 *
 * `in->rows` holds this process's rows. A mean over the global batch needs host->all_reduce, which
 * all ranks must call alike; in->targets counts the unmasked targets of all ranks. */
#include <math.h>

#include <ballast/monitor.h>

static const struct bl_option table[] = {
    {NULL, 0, 0, NULL, NULL, NULL, 0}, /* none yet; `every` and `name` are the trainer's */
};

static int32_t observe(void *self, const struct bl_host *host, const struct bl_monitor_input *in,
                       struct bl_error *err)
{
    const struct bl_row_stats *rows = in->rows;
    double sum = 0;
    (void)self;
    for (uint64_t i = 0; i < rows->count; i++)
        if (rows->valid[i])
            sum += sqrt(rows->m2[i] / (double)rows->vocab);
    if (host->all_reduce(host, &sum, 1, err) != 0)
        return -1;
    if (in->targets > 0)
        host->metric(host, "my_plugin/spread", sum / (double)in->targets);
    return 0;
}

static const struct bl_monitor_ops ops = {.observe = observe};

BL_PLUGIN(BL_KIND_MONITOR, "my_plugin", "0.1", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, table, 0, NULL);
