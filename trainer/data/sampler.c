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
