#include "report/spikes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The last values in order of arrival (a ring) and of size. */
struct history {
    double arrived[BL_SPIKE_HISTORY], sorted[BL_SPIKE_HISTORY];
    size_t count, next;
};

/* First index whose value is not below v. */
static size_t rank(const struct history *h, double v)
{
    size_t low = 0, high = h->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (h->sorted[middle] < v)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void accept(struct history *h, double v)
{
    if (h->count == BL_SPIKE_HISTORY) {
        size_t i = rank(h, h->arrived[h->next]);
        memmove(h->sorted + i, h->sorted + i + 1, (h->count - i - 1) * sizeof(double));
        h->count--;
    }
    size_t i = rank(h, v);
    memmove(h->sorted + i + 1, h->sorted + i, (h->count - i) * sizeof(double));
    h->sorted[i] = v;
    h->count++;
    h->arrived[h->next] = v;
    h->next = (h->next + 1) % BL_SPIKE_HISTORY;
}

/* Halves first: the sum of two large values may be infinite. */
static double middle(double a, double b)
{
    return a / 2 + b / 2;
}

static double median(const struct history *h)
{
    size_t n = h->count;
    return n % 2 ? h->sorted[n / 2] : middle(h->sorted[n / 2 - 1], h->sorted[n / 2]);
}

/* Median of |v - m|: distances grow away from m on both sides, so they are merged, not sorted. */
static double median_distance(const struct history *h, double m)
{
    size_t n = h->count, right = rank(h, m), left = right;
    double before = 0, d = 0;
    for (size_t taken = 0; taken <= n / 2; taken++) {
        before = d;
        double a = left > 0 ? m - h->sorted[left - 1] : INFINITY;
        double b = right < n ? h->sorted[right] - m : INFINITY;
        if (a < b)
            left--;
        else
            right++;
        d = fmin(a, b);
    }
    return n % 2 ? d : middle(before, d);
}

static struct bl_spike *add(struct bl_spikes *s)
{
    if (s->count == s->capacity) {
        size_t capacity = s->capacity ? 2 * s->capacity : 16;
        struct bl_spike *grown = realloc(s->items, capacity * sizeof *grown);
        if (grown == NULL)
            return NULL;
        s->items = grown;
        s->capacity = capacity;
    }
    return &s->items[s->count++];
}

int bl_spikes_find(const struct bl_curve *c, struct bl_spikes *out, struct bl_error *err)
{
    struct history h = {.count = 0};
    struct bl_spikes found = {0};
    size_t in_a_row = 0;
    for (size_t i = 0; i < c->count; i++) {
        double v = c->value[i], score = INFINITY;
        if (isfinite(v)) {
            double m = h.count >= BL_SPIKE_LEAST ? median(&h) : 0;
            double s = h.count >= BL_SPIKE_LEAST
                           ? fmax(1.4826 * median_distance(&h, m), 1e-6 * fabs(m))
                           : INFINITY;
            if (v <= m + BL_SPIKE_THRESHOLD * s) {
                accept(&h, v);
                in_a_row = 0;
                continue;
            }
            score = s > 0 ? (v - m) / s : INFINITY;
        }
        struct bl_spike *spike = in_a_row > 0 ? &found.items[found.count - 1] : add(&found);
        if (spike == NULL) {
            bl_spikes_free(&found);
            return bl_error_set(err, BL_EXIT_FAILED, "out of memory");
        }
        if (in_a_row == 0)
            *spike = (struct bl_spike){c->step[i], c->step[i], c->step[i], v, score, 0};
        spike->last = c->step[i];
        spike->rows++;
        if (isfinite(spike->value) && !(v <= spike->value)) {
            spike->step = c->step[i];
            spike->value = v;
            spike->score = score;
        }
        if (++in_a_row == BL_SPIKE_HISTORY) {
            h = (struct history){.count = 0};
            in_a_row = 0;
        }
    }
    *out = found;
    return 0;
}

void bl_spikes_free(struct bl_spikes *s)
{
    if (s == NULL)
        return;
    free(s->items);
    memset(s, 0, sizeof *s);
}
