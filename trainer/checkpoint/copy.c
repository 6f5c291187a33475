#include "checkpoint/copy.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "checkpoint/internal.h"

#define PIECE (4u << 20) /* bytes that one thread copies at a time */

struct piece {
    char *to;
    const char *from;
    uint64_t bytes;
};

struct bl_copy {
    void (*parallel_for)(void *context, uint64_t n, void (*body)(void *, uint64_t), void *argument);
    void *context;
    struct bl_checkpoint c; /* owns everything it points to but the tensors' data */
    char *numbers;
    uint64_t capacity, bytes;
    struct piece *pieces;
    uint64_t piece_count, piece_capacity;
};

struct bl_copy *bl_copy_make(void (*parallel_for)(void *context, uint64_t n,
                                                  void (*body)(void *, uint64_t), void *argument),
                             void *context)
{
    struct bl_copy *copy = calloc(1, sizeof(*copy));

    if (copy) {
        copy->parallel_for = parallel_for;
        copy->context = context;
    }
    return copy;
}

/* What a const member points to is the copy's own. */
static void release(const void *pointer)
{
    free((void *)(uintptr_t)pointer);
}

static void release_tensors(const struct bl_tensor *tensors, size_t count)
{
    for (size_t i = 0; tensors && i < count; i++)
        release(tensors[i].name);
    release(tensors);
}

static void release_all(struct bl_checkpoint *c)
{
    release_tensors(c->weights, c->weight_count);
    release_tensors(c->states, c->state_count);
    for (size_t i = 0; c->plugins && i < c->plugin_count; i++) {
        release(c->plugins[i].key);
        release(c->plugins[i].bytes);
    }
    for (size_t i = 0; c->loaded && i < c->loaded_count; i++)
        release(c->loaded[i].key);
    release(c->plugins);
    release(c->loaded);
    release(c->slices);
    release(c->config);
    release(c->from);
    memset(c, 0, sizeof(*c));
}

void bl_copy_free(struct bl_copy *copy)
{
    if (!copy)
        return;
    release_all(&copy->c);
    bl_free(copy->numbers);
    free(copy->pieces);
    free(copy);
}

/* ---- names and plugins ----------------------------------------------------------------------- */

static void *duplicate(const void *bytes, size_t n, int *failed)
{
    void *own = malloc(n + 1);

    if (own && n > 0)
        memcpy(own, bytes, n);
    *failed |= !own;
    return own;
}

static char *duplicate_text(const char *text, int *failed)
{
    return text ? duplicate(text, strlen(text) + 1, failed) : NULL;
}

static struct bl_tensor *copy_tensors(const struct bl_tensor *tensors, size_t count, int *failed)
{
    struct bl_tensor *own = duplicate(tensors, count * sizeof(*own), failed);

    for (size_t i = 0; own && i < count; i++)
        own[i].name = duplicate_text(tensors[i].name, failed);
    return own;
}

static struct bl_checkpoint_plugin *copy_plugins(const struct bl_checkpoint *c, int *failed)
{
    struct bl_checkpoint_plugin *own =
        duplicate(c->plugins, c->plugin_count * sizeof(*own), failed);

    for (size_t i = 0; own && i < c->plugin_count; i++) {
        own[i].key = duplicate_text(c->plugins[i].key, failed);
        own[i].bytes = duplicate(c->plugins[i].bytes, c->plugins[i].count, failed);
    }
    return own;
}

static struct bl_checkpoint_loaded *copy_loaded(const struct bl_checkpoint *c, int *failed)
{
    struct bl_checkpoint_loaded *own = duplicate(c->loaded, c->loaded_count * sizeof(*own), failed);

    for (size_t i = 0; own && i < c->loaded_count; i++)
        own[i].key = duplicate_text(c->loaded[i].key, failed);
    return own;
}

/* ---- numbers --------------------------------------------------------------------------------- */

static uint64_t bytes_of(const struct bl_tensor *t)
{
    return t->count * bl_checkpoint_element_bytes(t->dtype);
}

/* 64-byte lines, so that pieces of several threads share none. */
static uint64_t room(uint64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static const struct bl_tensor *find_same(const struct bl_tensor *tensors, size_t count,
                                         const struct bl_tensor *t)
{
    for (size_t i = 0; i < count; i++)
        if (tensors[i].data == t->data && bytes_of(&tensors[i]) == bytes_of(t))
            return &tensors[i];
    return NULL;
}

/* -1: no memory. */
static int add_pieces(struct bl_copy *copy, char *to, const char *from, uint64_t bytes)
{
    while (bytes > 0) {
        uint64_t n = bytes < PIECE ? bytes : PIECE;
        if (copy->piece_count == copy->piece_capacity) {
            uint64_t capacity = 2 * copy->piece_capacity + 64;
            struct piece *larger = realloc(copy->pieces, capacity * sizeof(*larger));
            if (!larger)
                return -1;
            copy->pieces = larger;
            copy->piece_capacity = capacity;
        }
        copy->pieces[copy->piece_count++] = (struct piece){to, from, n};
        to += n;
        from += n;
        bytes -= n;
    }
    return 0;
}

static void copy_piece(void *argument, uint64_t i)
{
    const struct piece *p = &((const struct bl_copy *)argument)->pieces[i];

    memcpy(p->to, p->from, p->bytes);
}

static void zero_piece(void *argument, uint64_t i)
{
    const struct piece *p = &((const struct bl_copy *)argument)->pieces[i];

    memset(p->to, 0, p->bytes);
}

static void each_piece(struct bl_copy *copy, void (*body)(void *, uint64_t))
{
    if (copy->parallel_for)
        copy->parallel_for(copy->context, copy->piece_count, body, copy);
    else
        for (uint64_t i = 0; i < copy->piece_count; i++)
            body(copy, i);
}

/* The states, then those weights that are no state: in fp32 the working weights are the master. -1
 * when there is no memory for them. */
static int cut_pieces(struct bl_copy *copy, const struct bl_checkpoint *c)
{
    uint64_t total = 0, at = 0;

    for (size_t i = 0; i < c->state_count; i++)
        total += room(bytes_of(&c->states[i]));
    for (size_t i = 0; i < c->weight_count; i++)
        if (!find_same(c->states, c->state_count, &c->weights[i]))
            total += room(bytes_of(&c->weights[i]));
    if (total > copy->capacity) {
        bl_free(copy->numbers);
        copy->numbers = bl_alloc(total, 1);
        copy->capacity = copy->numbers ? total : 0;
        if (!copy->numbers)
            return -1;
    }
    copy->piece_count = 0;
    for (size_t i = 0; i < c->state_count; i++) {
        const struct bl_tensor *t = &c->states[i];
        if (add_pieces(copy, copy->numbers + at, t->data, bytes_of(t)) != 0)
            return -1;
        at += room(bytes_of(t));
    }
    for (size_t i = 0; i < c->weight_count; i++) {
        const struct bl_tensor *t = &c->weights[i];
        if (find_same(c->states, c->state_count, t))
            continue;
        if (add_pieces(copy, copy->numbers + at, t->data, bytes_of(t)) != 0)
            return -1;
        at += room(bytes_of(t));
    }
    return 0;
}

int bl_copy_reserve(struct bl_copy *copy, const struct bl_checkpoint *c)
{
    if (cut_pieces(copy, c) != 0)
        return -1;
    each_piece(copy, zero_piece);
    return 0;
}

static void point_at_copies(struct bl_copy *copy, const struct bl_checkpoint *c,
                            struct bl_tensor *weights, struct bl_tensor *states)
{
    uint64_t at = 0;

    for (size_t i = 0; i < c->state_count; i++) {
        states[i].data = copy->numbers + at;
        at += room(bytes_of(&states[i]));
    }
    for (size_t i = 0; i < c->weight_count; i++) {
        const struct bl_tensor *same = find_same(c->states, c->state_count, &weights[i]);
        if (same) {
            weights[i].data = states[same - c->states].data;
            continue;
        }
        weights[i].data = copy->numbers + at;
        at += room(bytes_of(&weights[i]));
    }
}

int bl_copy_take(struct bl_copy *copy, const struct bl_checkpoint *c, int numbers,
                 const struct bl_checkpoint **out, int *aside, struct bl_error *err)
{
    struct bl_tensor *weights, *states;
    int failed = 0;

    release_all(&copy->c);
    copy->c = *c;
    copy->c.weights = weights = copy_tensors(c->weights, c->weight_count, &failed);
    copy->c.states = states = copy_tensors(c->states, c->state_count, &failed);
    copy->c.slices =
        c->slices ? duplicate(c->slices, c->state_count * sizeof(*c->slices), &failed) : NULL;
    copy->c.plugins = copy_plugins(c, &failed);
    copy->c.loaded = copy_loaded(c, &failed);
    copy->c.config = duplicate_text(c->config, &failed);
    copy->c.from = duplicate_text(c->from, &failed);
    if (failed) {
        release_all(&copy->c);
        return bl_error_set(err, BL_EXIT_FAILED, "checkpoint: out of memory");
    }
    copy->bytes = 0;
    for (size_t i = 0; i < c->weight_count; i++)
        copy->bytes += bytes_of(&weights[i]);
    for (size_t i = 0; i < c->state_count; i++)
        copy->bytes += bytes_of(&states[i]);
    *aside = numbers && cut_pieces(copy, c) == 0;
    if (*aside) {
        each_piece(copy, copy_piece);
        point_at_copies(copy, c, weights, states);
    }
    *out = &copy->c;
    return 0;
}

uint64_t bl_copy_bytes(const struct bl_copy *copy)
{
    return copy->bytes;
}
