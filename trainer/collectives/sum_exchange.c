/* The sum over ranks that several processes play. Each keeps its own ranks' contributions, and does
 * the steps of the programs that are at its ranks. What a step needs from elsewhere arrives as a
 * message: a partial sum when it is made, a contribution at once.
 *
 * A process does its segments of all batches in the order (stage, batch): in a ring over P = W this
 * is the pipeline in which every process works on another chunk. What a segment waits for has an
 * earlier place in that order, and nobody waits for a message to leave before the round is over:
 * the first segment of all that is not done can always be done. */
#include <stdlib.h>
#include <string.h>

#include "collectives/sum_schedule.h"

/* Tags of the messages about a batch; batches of different rounds may share them, as messages with
 * the same tag keep their order. */
enum {
    TAG_BITS = 18,
    TAG_RESULT = 0x10000, /* below: a contribution, by its rank */
    TAG_MOVE = 0x20000    /* a partial sum, by its move */
};

struct round {
    struct bl_sum *s;
    struct bl_sum_exchange *x;
    const struct bl_sum_run *run;
    const struct bl_sum_item *item;
    const struct bl_schedule *schedule;
    uint32_t index;
    int scatter;
    uint64_t task_count, outbox;
};

static int skipped(const struct round *r, const struct bl_batch *b)
{
    return b->array == BL_SUM_PART && r->run->part_out == NULL;
}

static uint64_t tag_of(uint32_t batch, uint32_t what)
{
    return (uint64_t)batch << TAG_BITS | what;
}

/* ---- messages that are waited for at the end of a round ---------------------------------------
 */

static struct bl_message **place(struct bl_sum_exchange *x, struct bl_error *err)
{
    if (x->message_count == x->message_capacity) {
        uint64_t capacity = x->message_capacity > 0 ? 2 * x->message_capacity : 256;
        struct bl_message **grown = realloc(x->messages, capacity * sizeof *grown);
        if (grown == NULL) {
            bl_error_set(err, BL_EXIT_FAILED, "sum over processes: out of memory");
            return NULL;
        }
        x->messages = grown;
        x->message_capacity = capacity;
    }
    x->messages[x->message_count] = NULL;
    return &x->messages[x->message_count++];
}

static int send(struct round *r, uint32_t to, uint64_t tag, const void *data, uint64_t bytes,
                struct bl_error *err)
{
    struct bl_message **m = place(r->x, err);
    return m != NULL ? bl_world_send(r->x->world, to, tag, data, bytes, m, err) : -1;
}

static int wait_for_all(struct round *r, struct bl_error *err)
{
    int rc = bl_world_wait(r->x->world, r->x->messages, r->x->message_count, err);
    r->x->message_count = 0;
    return rc;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Steps of a segment for a batch: every piece's own, or some that all pieces have. */
struct work {
    const struct round *r;
    const struct bl_batch *batch;
    uint32_t segment;
    int own;                    /* every piece's, all of the segment; the others are unused */
    uint32_t begin, end, stack; /* partial sums before the first step */
    const char *came;           /* packed contribution from elsewhere */
};

static void do_steps(const struct work *w, uint64_t begin, uint64_t n, uint32_t program)
{
    const struct bl_sum *s = w->r->s;
    const struct bl_sum_item *item = w->r->item;
    const struct bl_segment *g = &item->routes[program].segments[w->segment];
    struct bl_sum_random random = bl_sum_random_at(s, w->r->run, begin);
    uint32_t first = w->r->x->process * w->r->x->ranks, stack = w->own ? g->stack : w->stack;
    uint32_t end = w->own ? g->end : w->end;
    float x[BL_SUM_LINE];
    for (uint32_t i = w->own ? g->begin : w->begin; i < end; i++) {
        struct bl_order_step step;
        const float *addend = x;
        bl_order_step(item->order, program, i, &step);
        stack += step.op == BL_ORDER_SET;
        stack -= step.op == BL_ORDER_MERGE;
        if (step.op == BL_ORDER_MERGE)
            addend = bl_sum_level(s, w->r->run, item, w->batch->array, stack, begin);
        else
            bl_sum_unpack(item->rule.wire, n,
                          w->came != NULL
                              ? w->came + (begin - w->batch->begin) * bl_sum_width(item->rule.wire)
                              : bl_sum_stored(s, item, w->batch->array, step.rank - first, begin),
                          x);
        bl_sum_step(&item->rule, n, step.op == BL_ORDER_SET, step.rounding, &random, i, addend,
                    bl_sum_level(s, w->r->run, item, w->batch->array, stack - 1, begin), NULL);
    }
}

static void work_block(void *argument, uint64_t block)
{
    const struct work *w = argument;
    const struct bl_sum_item *item = w->r->item;
    uint64_t base = item->buffer.begin, at = w->batch->begin + block * BL_SUM_BLOCK;
    uint64_t end = bl_order_less(at + BL_SUM_BLOCK, w->batch->end);
    for (uint64_t k = bl_order_find(item->order, at - base); at < end; k++) {
        struct bl_order_piece piece;
        bl_order_piece(item->order, k, &piece);
        uint64_t stop = bl_order_less(base + piece.end, end);
        while (at < stop) {
            uint64_t n = bl_order_less(stop - at, BL_SUM_LINE);
            do_steps(w, at, n, piece.program);
            at += n;
        }
    }
}

static void do_work(const struct work *w)
{
    bl_sum_parallel(w->r->s, bl_order_divide_up(w->batch->end - w->batch->begin, BL_SUM_BLOCK),
                    work_block, (void *)(uintptr_t)w);
}

/* ---- what arrives ---------------------------------------------------------------------------- */

/* A message that a task waits for: its moves first, then contributions in the order of steps. */
struct need {
    uint64_t task;
    uint32_t move, step; /* the one of them that is looked at next */
    uint32_t from, dtype, tag;
};

/* Steps on to the next one; 0 at the end. */
static int next_need(const struct round *r, struct need *n)
{
    for (; n->task < r->task_count; n->task++, n->move = n->step = 0) {
        const struct bl_task *task = &r->x->tasks[n->task];
        const struct bl_batch *b = &r->schedule->batches[task->batch];
        const struct bl_route *route = bl_batch_route(r->item, b);
        const struct bl_segment *g = &route->segments[task->segment];
        if (skipped(r, b))
            continue;
        if (n->move < g->ins) {
            const struct bl_move *m = &route->moves[g->in + n->move];
            n->from = route->segments[m->from].process;
            n->dtype = bl_sum_partial(r->item, m->rounding);
            n->tag = TAG_MOVE + g->in + n->move++;
            return 1;
        }
        while (route->remote && g->begin + n->step < g->end) {
            struct bl_order_step step;
            bl_order_step(r->item->order, b->program, g->begin + n->step++, &step);
            n->from = step.rank / r->x->ranks;
            if (step.op == BL_ORDER_MERGE || n->from == r->x->process)
                continue;
            n->dtype = r->item->rule.wire;
            n->tag = step.rank;
            return 1;
        }
    }
    return 0;
}

struct inbox {
    struct need next; /* to be started */
    struct bl_message *message[BL_SUM_AHEAD];
    uint64_t started, taken;
};

static char *inbox_slot(const struct bl_sum_exchange *x, uint64_t index)
{
    return x->inbox + index % BL_SUM_AHEAD * x->batch_bytes;
}

static int start_receives(struct round *r, struct inbox *in, struct bl_error *err)
{
    while (in->started < in->taken + BL_SUM_AHEAD && next_need(r, &in->next)) {
        const struct bl_task *task = &r->x->tasks[in->next.task];
        const struct bl_batch *b = &r->schedule->batches[task->batch];
        if (bl_world_receive(r->x->world, in->next.from, tag_of(task->batch, in->next.tag),
                             inbox_slot(r->x, in->started),
                             (b->end - b->begin) * bl_sum_width(in->next.dtype),
                             &in->message[in->started % BL_SUM_AHEAD], err) < 0)
            return -1;
        in->started++;
    }
    return 0;
}

/* The next message of the list; it is the caller's until the next call. */
static const char *take(struct round *r, struct inbox *in, struct bl_error *err)
{
    if (start_receives(r, in, err) < 0 ||
        bl_world_wait(r->x->world, &in->message[in->taken % BL_SUM_AHEAD], 1, err) < 0)
        return NULL;
    return inbox_slot(r->x, in->taken++);
}

/* ---- tasks ----------------------------------------------------------------------------------- */

static int take_moves(struct round *r, struct inbox *in, const struct bl_batch *b,
                      const struct bl_segment *g, struct bl_error *err)
{
    const struct bl_route *route = bl_batch_route(r->item, b);
    for (uint32_t k = 0; k < g->ins; k++) {
        const struct bl_move *m = &route->moves[g->in + k];
        const char *came = take(r, in, err);
        if (came == NULL)
            return -1;
        bl_sum_unpack(bl_sum_partial(r->item, m->rounding), b->end - b->begin, came,
                      bl_sum_level(r->s, r->run, r->item, b->array, m->level, b->begin));
    }
    return 0;
}

static int send_moves(struct round *r, uint32_t batch, const struct bl_segment *g,
                      struct bl_error *err)
{
    const struct bl_batch *b = &r->schedule->batches[batch];
    const struct bl_route *route = bl_batch_route(r->item, b);
    for (uint32_t k = g->out; k != BL_ROUTE_END; k = route->moves[k].next) {
        const struct bl_move *m = &route->moves[k];
        uint32_t dtype = bl_sum_partial(r->item, m->rounding);
        uint64_t n = b->end - b->begin, bytes = n * bl_sum_width(dtype);
        char *packed = r->x->outbox + r->outbox;
        r->outbox += bytes;
        bl_sum_pack(dtype, n, bl_sum_level(r->s, r->run, r->item, b->array, m->level, b->begin),
                    packed);
        if (send(r, route->segments[m->to].process, tag_of(batch, TAG_MOVE + k), packed, bytes,
                 err) < 0)
            return -1;
    }
    return 0;
}

static void do_until(struct work *w, uint32_t end)
{
    struct bl_order_step step;
    w->end = end;
    if (w->begin < end)
        do_work(w);
    for (; w->begin < end; w->begin++) {
        bl_order_step(w->r->item->order, w->batch->program, w->begin, &step);
        w->stack += step.op == BL_ORDER_SET;
        w->stack -= step.op == BL_ORDER_MERGE;
    }
}

/* Runs of steps that need no message, and between them those that do. */
static int steps_with_messages(struct round *r, struct inbox *in, struct work *w,
                               const struct bl_segment *g, struct bl_error *err)
{
    w->begin = g->begin;
    w->stack = g->stack;
    for (uint32_t i = g->begin; i < g->end; i++) {
        struct bl_order_step step;
        bl_order_step(r->item->order, w->batch->program, i, &step);
        if (step.op == BL_ORDER_MERGE || step.rank / r->x->ranks == r->x->process)
            continue;
        do_until(w, i);
        w->came = take(r, in, err);
        if (w->came == NULL)
            return -1;
        do_until(w, i + 1);
        w->came = NULL;
    }
    do_until(w, g->end);
    return 0;
}

static int do_task(struct round *r, struct inbox *in, const struct bl_task *task,
                   struct bl_error *err)
{
    const struct bl_batch *b = &r->schedule->batches[task->batch];
    const struct bl_route *route = bl_batch_route(r->item, b);
    const struct bl_segment *g = &route->segments[task->segment];
    struct work w = {.r = r, .batch = b, .segment = task->segment, .own = !route->remote};
    if (take_moves(r, in, b, g, err) < 0)
        return -1;
    if (!route->remote)
        do_work(&w);
    else if (steps_with_messages(r, in, &w, g, err) < 0)
        return -1;
    return send_moves(r, task->batch, g, err);
}

/* Own contributions that are added elsewhere: they leave as they are in the store. */
static int send_contributions(struct round *r, uint32_t batch, struct bl_error *err)
{
    const struct bl_batch *b = &r->schedule->batches[batch];
    const struct bl_route *route = bl_batch_route(r->item, b);
    uint32_t first = r->x->process * r->x->ranks;
    for (uint32_t k = 0; route->remote && k < route->segment_count; k++) {
        const struct bl_segment *g = &route->segments[k];
        for (uint32_t i = g->begin; g->process != r->x->process && i < g->end; i++) {
            struct bl_order_step step;
            bl_order_step(r->item->order, b->program, i, &step);
            if (step.op == BL_ORDER_MERGE || step.rank / r->x->ranks != r->x->process)
                continue;
            if (send(r, g->process, tag_of(batch, step.rank),
                     bl_sum_stored(r->s, r->item, b->array, step.rank - first, b->begin),
                     bl_batch_bytes(r->item, b), err) < 0)
                return -1;
        }
    }
    return 0;
}

static int do_tasks(struct round *r, struct bl_error *err)
{
    struct inbox in = {.started = 0};
    r->task_count = bl_schedule_tasks(r->s, (size_t)(r->item - r->s->items), r->index);
    for (uint32_t b = r->index; b < r->schedule->count; b += r->schedule->rounds)
        if (!skipped(r, &r->schedule->batches[b]) && send_contributions(r, b, err) < 0)
            return -1;
    if (start_receives(r, &in, err) < 0)
        return -1;
    for (uint64_t i = 0; i < r->task_count; i++)
        if (!skipped(r, &r->schedule->batches[r->x->tasks[i].batch]) &&
            do_task(r, &in, &r->x->tasks[i], err) < 0)
            return -1;
    return 0;
}

/* ---- results --------------------------------------------------------------------------------- */

/* Elements of a batch that a process wants, in [*begin, *end). */
static int wanted(const struct round *r, const struct bl_batch *b, uint32_t process,
                  uint64_t *begin, uint64_t *end)
{
    *begin = b->begin;
    *end = b->end;
    if (r->scatter && b->array == BL_SUM_ARRAY) {
        const uint64_t *shard = r->s->shard + process;
        *begin = shard[0] > b->begin ? shard[0] : b->begin;
        *end = bl_order_less(shard[1], b->end);
    }
    return *begin < *end;
}

static char *result_of(const struct round *r, const struct bl_batch *b, uint64_t element)
{
    return r->x->result + b->result + (element - b->begin) * bl_sum_width(r->item->rule.wire);
}

/* Sums to those who want them, one by one. */
static int scatter_batch(struct round *r, uint32_t batch, struct bl_error *err)
{
    const struct bl_batch *b = &r->schedule->batches[batch];
    size_t width = bl_sum_width(r->item->rule.wire);
    uint64_t begin, end, tag = tag_of(batch, TAG_RESULT);
    if (b->owner != r->x->process) {
        if (!wanted(r, b, r->x->process, &begin, &end))
            return 0;
        struct bl_message **m = place(r->x, err);
        return m != NULL ? bl_world_receive(r->x->world, b->owner, tag, result_of(r, b, begin),
                                            (end - begin) * width, m, err)
                         : -1;
    }
    for (uint32_t p = 0; p < r->x->processes; p++)
        if (p != r->x->process && wanted(r, b, p, &begin, &end) &&
            send(r, p, tag, result_of(r, b, begin), (end - begin) * width, err) < 0)
            return -1;
    return 0;
}

/* Rounds and packs the sums of which this process is the owner, or unpacks and scales all. */
struct results {
    const struct round *r;
    int unpack;
};

static void result_batch(void *argument, uint64_t index)
{
    const struct results *q = argument;
    const struct round *r = q->r;
    const struct bl_batch *b =
        &r->schedule->batches[r->index + (uint32_t)index * r->schedule->rounds];
    uint64_t begin = b->begin, end = b->end;
    if (skipped(r, b) || (!q->unpack && b->owner != r->x->process) ||
        (q->unpack && !wanted(r, b, r->x->process, &begin, &end)))
        return;
    float *a = bl_sum_level(r->s, r->run, r->item, b->array, 0, begin);
    if (!q->unpack) {
        bl_sum_close(&r->item->rule, end - begin, a);
        bl_sum_pack(r->item->rule.wire, end - begin, a, result_of(r, b, begin));
        return;
    }
    struct bl_sum_random random = bl_sum_random_at(r->s, r->run, begin);
    bl_sum_unpack(r->item->rule.wire, end - begin, result_of(r, b, begin), a);
    bl_sum_finish(&r->item->rule, end - begin, &random, a, a);
}

static int exchange_results(struct round *r, struct bl_error *err)
{
    struct results q = {.r = r};
    uint64_t n = bl_order_divide_up(r->schedule->count - r->index, r->schedule->rounds);
    bl_sum_parallel(r->s, n, result_batch, &q);
    if (r->scatter) {
        for (uint32_t b = r->index; b < r->schedule->count; b += r->schedule->rounds)
            if (!skipped(r, &r->schedule->batches[b]) && scatter_batch(r, b, err) < 0)
                return -1;
    }
    if (wait_for_all(r, err) < 0 ||
        (!r->scatter && bl_world_gather_parts(r->x->world, r->x->result, r->x->parts, err) < 0))
        return -1;
    q.unpack = 1;
    bl_sum_parallel(r->s, n, result_batch, &q);
    return 0;
}

/* ---- a run ----------------------------------------------------------------------------------- */

struct storing {
    struct bl_sum *s;
    const struct bl_sum_run *run;
    struct bl_sum_contribution contribution;
    uint64_t slot;
};

static void store_block(void *argument, uint64_t index)
{
    const struct storing *t = argument;
    const struct bl_sum_block *block = &t->s->blocks[index];
    const struct bl_sum_item *item = &t->s->items[block->item];
    float x[BL_SUM_LINE];
    if (block->array == BL_SUM_PART && t->run->part_out == NULL)
        return;
    for (uint64_t at = block->begin, n; at < block->end; at += n) {
        n = bl_order_less(block->end - at, BL_SUM_LINE);
        bl_sum_scale(&item->rule, n, bl_sum_raw(t->s, &t->contribution, block->array, at), x);
        bl_sum_pack(item->rule.wire, n, x, bl_sum_stored(t->s, item, block->array, t->slot, at));
    }
}

static int store_contributions(struct bl_sum *s, const struct bl_sum_run *run, struct bl_error *err)
{
    struct storing t = {.s = s, .run = run};
    for (; t.slot < s->exchange->ranks; t.slot++) {
        uint32_t rank = s->exchange->process * s->exchange->ranks + (uint32_t)t.slot;
        if (bl_sum_contribute(s, run, rank, 0, &t.contribution, err) < 0)
            return -1;
        if (run->measure)
            bl_sum_measure_add(s, t.contribution.array, t.slot == 0);
        bl_sum_parallel(s, s->block_count, store_block, &t);
    }
    return 0;
}

/* The exact sum over all ranks := those over each process's, added in their order. */
static int add_exact(struct bl_sum *s, struct bl_error *err)
{
    struct bl_sum_exchange *x = s->exchange;
    uint64_t most = 1 << 16;
    double *all = malloc(most * x->processes * sizeof *all);
    int rc =
        all != NULL ? 0 : bl_error_set(err, BL_EXIT_FAILED, "sum over processes: out of memory");
    for (uint64_t at = 0; rc == 0 && at < s->setup.elements; at += most) {
        uint64_t n = bl_order_less(most, s->setup.elements - at);
        rc = bl_world_gather(x->world, s->exact + at, n * sizeof *all, all, err);
        for (uint64_t i = 0; rc == 0 && i < n; i++) {
            s->exact[at + i] = 0;
            for (uint32_t p = 0; p < x->processes; p++)
                s->exact[at + i] += all[p * n + i];
        }
    }
    free(all);
    return rc;
}

int bl_sum_exchange_run(struct bl_sum *s, const struct bl_sum_run *run, struct bl_error *err)
{
    struct bl_sum_exchange *x = s->exchange;
    /* Statistics are of whole results. */
    int scatter = run->scatter && s->shard != NULL && !run->measure;
    if (store_contributions(s, run, err) < 0)
        return -1;
    for (size_t i = 0; i < s->count; i++)
        for (uint32_t k = 0; k < x->schedules[i].rounds; k++) {
            struct round r = {.s = s,
                              .x = x,
                              .run = run,
                              .item = &s->items[i],
                              .schedule = &x->schedules[i],
                              .index = k,
                              .scatter = scatter};
            if (do_tasks(&r, err) < 0 || exchange_results(&r, err) < 0)
                return -1;
        }
    if (run->measure) {
        if (add_exact(s, err) < 0)
            return -1;
        bl_sum_measure_end(s, run->out, NULL);
    }
    return 0;
}

int bl_sum_exchange_gather(struct bl_sum *s, float *array, struct bl_error *err)
{
    struct bl_sum_exchange *x = s->exchange;
    if (s->shard == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "a sum without shards has none to gather");
    for (uint32_t p = 0; p <= x->processes; p++)
        x->parts[p] = s->shard[p] * sizeof *array;
    return bl_world_gather_parts(x->world, array, x->parts, err);
}
