#include "data/data.h"

#include "base/random.h"

/* Apart from every stream that weights or rounding use. */
static const uint64_t order_stream = 0x6f72646572u; /* "order" */

uint64_t bl_sample_index(uint64_t seed, uint64_t sequences, uint64_t sample)
{
    if (sequences <= 1)
        return 0;
    return bl_permute(bl_random(seed, order_stream, sample / sequences), sequences,
                      sample % sequences);
}

int bl_data_hold_out(uint64_t sequences, double share, uint64_t *held, struct bl_error *err)
{
    uint64_t n = (uint64_t)((double)sequences * share);

    if (n == 0)
        n = 1;
    if (n >= sequences)
        return bl_error_set(err, BL_EXIT_DATA,
                            "data.holdout = %g: the training files have %llu sequence%s; held out, "
                            "nothing remains to train on",
                            share, (unsigned long long)sequences, sequences == 1 ? "" : "s");
    *held = n;
    return 0;
}
