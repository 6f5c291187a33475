#include "collectives/sum_schedule.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum {
    BATCH = 1 << 18,        /* elements of a batch */
    ROUND_BYTES = 64 << 20, /* of partial sums that are under way at a time */
    ROUND_MESSAGES = 2048   /* contributions that a process sends at a time */
};

static int out_of_memory(struct bl_error *err)
{
    return bl_error_set(err, BL_EXIT_FAILED, "sum over processes: out of memory");
}

/* ---- routes ---------------------------------------------------------------------------------- */

/* Buffers of the same algorithm and collective have the same programs, some more of them. */
static struct bl_route_set *find_set(struct bl_sum_exchange *x, const struct bl_sum_item *item)
{
    const struct bl_sum_format *f = &item->buffer.format;
    uint32_t programs = bl_order_programs(item->order);
    for (size_t i = 0; i < x->set_count; i++)
        if (x->sets[i].algorithm == f->algorithm && x->sets[i].collective == f->collective &&
            programs <= x->sets[i].count)
            return &x->sets[i];
    struct bl_route_set *set = &x->sets[x->set_count];
    *set = (struct bl_route_set){
        .algorithm = f->algorithm,
        .collective = f->collective,
        .count = programs,
        .routes = calloc(programs, sizeof *set->routes),
    };
    if (set->routes == NULL)
        return NULL;
    x->set_count++;
    return set;
}

static int make_routes(struct bl_sum_exchange *x, struct bl_sum_item *item, struct bl_error *err)
{
    struct bl_route_set *set = find_set(x, item);
    if (set == NULL)
        return out_of_memory(err);
    item->routes = set->routes;
    for (uint64_t k = 0; k < bl_order_pieces(item->order); k++) {
        struct bl_order_piece piece;
        bl_order_piece(item->order, k, &piece);
        struct bl_route *route = &set->routes[piece.program];
        if (route->segments == NULL &&
            bl_route_make(item->order, piece.program, x->ranks, x->processes, route, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- batches --------------------------------------------------------------------------------- */

static int append(struct bl_schedule *t, const struct bl_sum_item *item, const struct bl_batch *b)
{
    struct bl_batch *last = t->count > 0 ? &t->batches[t->count - 1] : NULL;
    if (last != NULL && last->array == b->array && last->end == b->begin &&
        b->end - last->begin <= BATCH && last->owner == b->owner &&
        bl_route_same(item->order, item->routes, last->program, b->program)) {
        last->end = b->end;
        return 0;
    }
    if (t->count == t->capacity) {
        uint32_t capacity = t->capacity > 0 ? 2 * t->capacity : 16;
        struct bl_batch *grown = realloc(t->batches, capacity * sizeof *grown);
        if (grown == NULL)
            return -1;
        t->batches = grown;
        t->capacity = capacity;
    }
    t->batches[t->count++] = *b;
    return 0;
}

static int make_batches(const struct bl_sum_exchange *x, const struct bl_sum_item *item,
                        uint32_t array, struct bl_schedule *t)
{
    const struct bl_sum_span *span = &item->span[array];
    uint64_t base = item->buffer.begin, at = span->begin;
    if (at == span->end)
        return 0;
    for (uint64_t k = bl_order_find(item->order, at - base); at < span->end; k++) {
        struct bl_order_piece piece;
        bl_order_piece(item->order, k, &piece);
        for (uint64_t end = bl_order_less(base + piece.end, span->end); at < end;) {
            struct bl_batch b = {.array = array,
                                 .begin = at,
                                 .end = bl_order_less(at + BATCH, end),
                                 .program = piece.program,
                                 .owner = piece.owner / x->ranks};
            if (append(t, item, &b) < 0)
                return -1;
            at = b.end;
        }
    }
    return 0;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static int compare_tasks(const void *a, const void *b)
{
    const struct bl_task *s = a, *t = b;
    if (s->stage != t->stage)
        return s->stage < t->stage ? -1 : 1;
    if (s->batch != t->batch)
        return s->batch < t->batch ? -1 : 1;
    return s->segment < t->segment ? -1 : s->segment > t->segment;
}

uint64_t bl_schedule_tasks(struct bl_sum *s, size_t index, uint32_t round)
{
    struct bl_sum_exchange *x = s->exchange;
    const struct bl_sum_item *item = &s->items[index];
    const struct bl_schedule *t = &x->schedules[index];
    uint64_t count = 0;
    memset(x->parts, 0, (x->processes + 1) * sizeof *x->parts);
    for (uint32_t b = round; b < t->count; b += t->rounds) {
        const struct bl_route *route = bl_batch_route(item, &t->batches[b]);
        x->parts[t->batches[b].owner + 1] += bl_batch_bytes(item, &t->batches[b]);
        for (uint32_t k = 0; k < route->segment_count; k++)
            if (route->segments[k].process == x->process)
                x->tasks[count++] = (struct bl_task){route->segments[k].stage, b, k};
    }
    for (uint32_t p = 0; p < x->processes; p++)
        x->parts[p + 1] += x->parts[p];
    qsort(x->tasks, count, sizeof *x->tasks, compare_tasks);
    return count;
}

static uint64_t more(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Contributions that this process sends for a batch. */
static uint64_t contributions(const struct bl_sum *s, const struct bl_sum_item *item,
                              const struct bl_batch *b)
{
    const struct bl_route *route = bl_batch_route(item, b);
    uint64_t count = 0;
    for (uint32_t k = 0; route->remote && k < route->segment_count; k++)
        for (uint32_t i = route->segments[k].begin; i < route->segments[k].end; i++) {
            struct bl_order_step step;
            bl_order_step(item->order, b->program, i, &step);
            count += step.op != BL_ORDER_MERGE &&
                     step.rank / s->exchange->ranks == s->exchange->process &&
                     route->segments[k].process != s->exchange->process;
        }
    return count;
}

/* What a round needs and sends, and where its results are. */
static void measure_round(struct bl_sum *s, size_t index, uint32_t round)
{
    struct bl_sum_exchange *x = s->exchange;
    const struct bl_sum_item *item = &s->items[index];
    struct bl_schedule *t = &x->schedules[index];
    uint64_t tasks = 0, outbox = 0, result = 0, next = (x->process + 1) % x->processes;
    for (uint32_t p = 0; p < x->processes; p++)
        for (uint32_t b = round; b < t->count; b += t->rounds) {
            if (t->batches[b].owner != p)
                continue;
            t->batches[b].result = result;
            result += bl_batch_bytes(item, &t->batches[b]);
        }
    for (uint32_t b = round; b < t->count; b += t->rounds) {
        const struct bl_batch *batch = &t->batches[b];
        const struct bl_route *route = bl_batch_route(item, batch);
        uint64_t bytes = bl_batch_bytes(item, batch), n = batch->end - batch->begin;
        for (uint32_t k = 0; k < route->segment_count; k++)
            tasks += route->segments[k].process == x->process;
        for (uint32_t m = 0; m < route->move_count; m++)
            if (route->segments[route->moves[m].from].process == x->process)
                outbox += n * bl_sum_width(bl_sum_partial(item, route->moves[m].rounding));
        x->wire_bytes += contributions(s, item, batch) * bytes;
        x->wire_bytes += batch->owner != next ? bytes : 0; /* in the ring that gathers */
        x->batch_bytes = more(x->batch_bytes, n * sizeof(float));
    }
    x->wire_bytes += outbox;
    x->task_count = more(x->task_count, tasks);
    x->outbox_bytes = more(x->outbox_bytes, outbox);
    x->result_bytes = more(x->result_bytes, result);
}

/* The same rounds in all processes. */
static void make_rounds(struct bl_sum *s, size_t index)
{
    struct bl_sum_exchange *x = s->exchange;
    struct bl_schedule *t = &x->schedules[index];
    uint64_t bytes = 0, messages = 0;
    for (uint32_t b = 0; b < t->count; b++) {
        bytes += bl_batch_bytes(&s->items[index], &t->batches[b]);
        messages += bl_batch_route(&s->items[index], &t->batches[b])->remote ? x->ranks : 0;
    }
    uint64_t rounds =
        more(bl_order_divide_up(bytes, ROUND_BYTES), bl_order_divide_up(messages, ROUND_MESSAGES));
    t->rounds = (uint32_t)bl_order_less(rounds, t->count);
    for (uint32_t k = 0; k < t->rounds; k++)
        measure_round(s, index, k);
}

/* ---- all ------------------------------------------------------------------------------------- */

int bl_sum_exchange_make(struct bl_sum *s, struct bl_error *err)
{
    struct bl_sum_exchange *x = calloc(1, sizeof *x);
    if (x == NULL)
        return out_of_memory(err);
    s->exchange = x;
    x->world = s->setup.world;
    x->process = bl_world_process(x->world);
    x->processes = bl_world_processes(x->world);
    x->ranks = s->setup.ranks / x->processes;
    x->schedule_count = s->count;
    s->slots = x->ranks;
    x->sets = calloc(s->count + 1, sizeof *x->sets);
    x->schedules = calloc(s->count + 1, sizeof *x->schedules);
    x->parts = calloc(x->processes + 1, sizeof *x->parts);
    if (x->sets == NULL || x->schedules == NULL || x->parts == NULL)
        return out_of_memory(err);
    for (size_t i = 0; i < s->count; i++) {
        if (make_routes(x, &s->items[i], err) < 0)
            return -1;
        for (uint32_t a = 0; a < BL_SUM_ARRAYS; a++)
            if (make_batches(x, &s->items[i], a, &x->schedules[i]) < 0)
                return out_of_memory(err);
        make_rounds(s, i);
    }
    x->tasks = calloc(x->task_count + 1, sizeof *x->tasks);
    x->outbox = bl_alloc(x->outbox_bytes + 1, 1);
    x->inbox = bl_alloc(BL_SUM_AHEAD, x->batch_bytes + 1);
    x->result = bl_alloc(x->result_bytes + 1, 1);
    return x->tasks && x->outbox && x->inbox && x->result ? 0 : out_of_memory(err);
}

void bl_sum_exchange_free(struct bl_sum_exchange *x)
{
    if (x == NULL)
        return;
    for (size_t i = 0; i < x->set_count; i++) {
        for (uint32_t k = 0; k < x->sets[i].count; k++)
            bl_route_free(&x->sets[i].routes[k]);
        free(x->sets[i].routes);
    }
    for (size_t i = 0; x->schedules != NULL && i < x->schedule_count; i++)
        free(x->schedules[i].batches);
    free(x->sets);
    free(x->schedules);
    free(x->parts);
    free(x->tasks);
    bl_free(x->outbox);
    bl_free(x->inbox);
    bl_free(x->result);
    free(x->messages);
    free(x);
}

uint64_t bl_sum_exchange_wire_bytes(const struct bl_sum *s)
{
    return s->exchange->wire_bytes;
}

uint64_t bl_sum_exchange_bytes(const struct bl_sum *s)
{
    const struct bl_sum_exchange *x = s->exchange;
    uint64_t bytes = x->task_count * sizeof *x->tasks + x->outbox_bytes +
                     BL_SUM_AHEAD * x->batch_bytes + x->result_bytes;
    for (size_t i = 0; i < s->count; i++)
        bytes += x->schedules[i].capacity * sizeof *x->schedules[i].batches;
    for (size_t i = 0; i < x->set_count; i++)
        for (uint32_t k = 0; k < x->sets[i].count; k++)
            bytes += sizeof(struct bl_route) +
                     x->sets[i].routes[k].segment_count * sizeof(struct bl_segment) +
                     x->sets[i].routes[k].move_count * sizeof(struct bl_move);
    return bytes;
}
