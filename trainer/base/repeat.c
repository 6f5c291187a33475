#include "base/repeat.h"

#include <stdio.h>
#include <string.h>

/* The kind with this key, or the place for it: a free one, else the one unused for longest. */
static struct bl_repeat *place(struct bl_repeats *t, uint64_t key)
{
    struct bl_repeat *oldest = &t->kinds[0];
    for (int i = 0; i < BL_REPEAT_KINDS; i++) {
        struct bl_repeat *k = &t->kinds[i];
        if (k->count > 0 && k->key == key)
            return k;
        if (k->used < oldest->used)
            oldest = k; /* a free one has 0 */
    }
    return oldest;
}

int bl_repeat_add(struct bl_repeats *t, uint64_t key, const char *message, uint64_t *count,
                  struct bl_repeat *gone)
{
    struct bl_repeat *k = place(t, key);
    gone->count = 0;
    if (k->key != key || k->count == 0) {
        *gone = *k;
        memset(k, 0, sizeof *k);
        k->key = key;
    }
    k->count++;
    k->used = ++t->calls;
    snprintf(k->last, sizeof k->last, "%s", message);
    int show = (k->count & (k->count - 1)) == 0;
    k->shown += (uint64_t)show;
    *count = k->count;
    return show;
}
