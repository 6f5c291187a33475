/* The range text of an option: intervals of numbers, lists of words. */
#ifndef BL_CONFIG_RANGE_H
#define BL_CONFIG_RANGE_H

#include <ballast/plugin.h>

struct bl_range {
    int64_t int_low, int_high; /* both ends belong to it */
    double low, high;
    int open_low, open_high; /* of the doubles: the end does not belong to it */
};

/* NULL is every finite value. 0, or -1 when the text is no interval or an empty one. */
int bl_range_parse(const char *text, struct bl_range *out);
int bl_range_has_int(const struct bl_range *r, int64_t value);
int bl_range_has_double(const struct bl_range *r, double value); /* NaN is in no range */

/* Words joined by '|'. */
int bl_words_count(const char *words);
/* The word number i as a slice of words. */
const char *bl_words_get(const char *words, int i, int *length);
int bl_words_find(const char *words, const char *word); /* -1: not there */

#endif
