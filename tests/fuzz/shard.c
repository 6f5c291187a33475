/* Fuzz target: the beginning of a file of token ids.
 *
 * Input: byte 0 the format that the user named (modulo their number), and with bit 7 a claimed
 * size of the file in the next 8 bytes; then the file. */
#include "data/shard_format.h"
#include "target.h"

static void check_layout(const struct bl_shard_layout *l, uint64_t size, enum bl_shard_format asked)
{
    FUZZ_REQUIRE(l->format > BL_SHARD_AUTO && l->format <= BL_SHARD_RAW32);
    FUZZ_REQUIRE(asked == BL_SHARD_AUTO || asked == l->format);
    FUZZ_REQUIRE(l->width == 2 || l->width == 4);
    FUZZ_REQUIRE(l->start <= size && (size - l->start) % l->width == 0);
    FUZZ_REQUIRE((size - l->start) / l->width == l->items);
    FUZZ_REQUIRE(l->vocab <= INT32_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bl_shard_layout l = {BL_SHARD_TEXT, 7, 7, 7, 7};
    char why[BL_SHARD_WHY];
    uint64_t claimed = 0;
    size_t n;

    if (size < 9)
        return 0;
    enum bl_shard_format asked = (enum bl_shard_format)((data[0] & 0x7f) % (BL_SHARD_RAW32 + 1));
    memcpy(&claimed, data + 1, sizeof(claimed));
    if (!(data[0] & 0x80) || claimed < size - 9)
        claimed = size - 9;
    /* The reader gets min(size, BL_SHARD_PIECE) bytes or more; what the input lacks repeats. */
    n = claimed < BL_SHARD_PIECE ? (size_t)claimed : BL_SHARD_PIECE;
    if (n < size - 9)
        n = size - 9;
    unsigned char *bytes = calloc(n + 1, 1); /* +1: n may be 0 */
    FUZZ_REQUIRE(bytes != NULL);
    for (size_t i = 0; i < n && size > 9; i += size - 9)
        memcpy(bytes + i, data + 9, n - i < size - 9 ? n - i : size - 9);
    unsigned char *exact = realloc(bytes, n ? n : 1);
    FUZZ_REQUIRE(exact != NULL);
    if (bl_shard_parse(exact, n, claimed, asked, &l, why) == 0) {
        check_layout(&l, claimed, asked);
    } else {
        FUZZ_REQUIRE(l.format == BL_SHARD_TEXT && l.items == 7);
        FUZZ_REQUIRE(why[0] != '\0' && memchr(why, '\0', sizeof(why)) && !strchr(why, '\n'));
    }
    free(exact);
    return 0;
}
