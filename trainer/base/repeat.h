/* Which of many messages of one kind are worth a line: the 1st, 2nd, 4th, 8th and so on. */
#ifndef BL_BASE_REPEAT_H
#define BL_BASE_REPEAT_H

#include <stdint.h>

enum { BL_REPEAT_KINDS = 64, BL_REPEAT_TEXT = 200 };

struct bl_repeat {              /* all zero: no kind */
    uint64_t key, count, shown; /* shown: how many of them had a line */
    uint64_t used;              /* when it was counted last, in calls */
    char last[BL_REPEAT_TEXT];  /* the latest message, cut */
};

struct bl_repeats { /* starts as zeros; its size never grows */
    struct bl_repeat kinds[BL_REPEAT_KINDS];
    uint64_t calls;
};

/* Counts one more message; *count is how many of its kind there were. 1: show it. When the table
 * is full, the kind that was quiet for longest makes room and is copied to *gone, which else gets
 * a count of 0. */
int bl_repeat_add(struct bl_repeats *t, uint64_t key, const char *message, uint64_t *count,
                  struct bl_repeat *gone);

#endif
