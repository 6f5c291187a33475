#include "lab/lab.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "collectives/sum_math.h"

static struct bl_sum_format format_of(const struct bl_lab_setup *s, uint32_t algorithm,
                                      uint32_t average)
{
    struct bl_sum_format f = *s->format;
    f.algorithm = algorithm;
    f.average = average;
    return f;
}

static struct bl_order_setup order_of(const struct bl_lab_setup *s, uint32_t ranks,
                                      uint32_t algorithm)
{
    return (struct bl_order_setup){.ranks = ranks,
                                   .algorithm = algorithm,
                                   .collective = s->format->collective,
                                   .cluster = s->cluster,
                                   .elements = s->elements,
                                   .element_bytes = (uint32_t)bl_sum_width(s->format->wire)};
}

/* The sum of the terms by one format: the result in `result`, what it is off in `out`. */
static int sum_terms(const struct bl_lab_setup *s, uint32_t ranks, const struct bl_sum_format *f,
                     struct bl_lab_terms *terms, float *result, struct bl_sum_statistics *out,
                     struct bl_error *err)
{
    struct bl_sum_buffer buffer = {.end = s->elements, .format = *f};
    struct bl_sum_setup setup = {.ranks = ranks,
                                 .cluster = s->cluster,
                                 .buffers = &buffer,
                                 .buffer_count = 1,
                                 .elements = s->elements,
                                 .seed = s->seed,
                                 .parallel_for = bl_backend_parallel_for,
                                 .parallel_context = s->backend};
    struct bl_sum_run run = {.step = 1,
                             .contribute = bl_lab_contribute,
                             .context = terms,
                             .out = result,
                             .measure = out != NULL};
    struct bl_sum *sum = NULL;
    if (bl_sum_make(&setup, &sum, err) != 0)
        return -1;
    int rc = bl_sum_run(sum, &run, err);
    if (rc == 0 && out != NULL)
        bl_sum_measured(sum, BL_GROUP_COUNT, out);
    bl_sum_free(sum);
    return rc;
}

/* A line "# ..." of the notes, once. */
static void note(struct bl_lab_result *r, const char *text)
{
    char *line = bl_format("# %s\n", text);
    if (line == NULL)
        r->notes.failed = 1;
    else if (r->notes.text == NULL || strstr(r->notes.text, line) == NULL)
        bl_text_add(&r->notes, "%s", line);
    free(line);
}

static int measure(const struct bl_lab_setup *s, struct bl_lab_row *row, struct bl_lab_terms *terms,
                   float *result, struct bl_lab_result *r, struct bl_error *err)
{
    struct bl_order_setup setup = order_of(s, row->ranks, row->algorithm);
    struct bl_sum_format f = format_of(s, row->algorithm, row->average);
    struct bl_order *order = NULL;
    struct bl_text text = {0};
    if (bl_order_make(&setup, &order, err) != 0)
        return -1;
    int rc = sum_terms(s, row->ranks, &f, terms, result, &row->measured, err);
    if (rc == 0)
        rc = bl_lab_law(order, s->elements, row->ranks, &f, row->values, &row->law, err);
    if (rc == 0) {
        row->first = (double)result[0] * row->ranks;
        /* Of the last number of ranks: the others have the same rules. */
        if (row->ranks == (uint32_t)s->ranks[s->ranks_count - 1])
            bl_order_text(order, &text);
        if (text.text != NULL)
            note(r, text.text);
        r->notes.failed |= text.failed;
    }
    bl_text_free(&text);
    bl_order_free(order);
    return rc;
}

static int begin(const struct bl_lab_setup *s, float **result, struct bl_error *err)
{
    *result = bl_alloc(s->elements, 2 * sizeof **result);
    return *result != NULL ? 0
                           : bl_error_set(err, BL_EXIT_FAILED, "no memory for %" PRIu64 " elements",
                                          s->elements);
}

static int run_terms(const struct bl_lab_setup *s, const struct bl_lab_values *v, uint32_t ranks,
                     float *result, struct bl_lab_result *r, struct bl_error *err)
{
    struct bl_lab_terms *terms = NULL;
    int rc = bl_lab_terms_make(v, ranks, s->elements, s->seed, s->backend, &terms, err);
    for (size_t i = 0; rc == 0 && i < s->average_count * s->algorithm_count; i++) {
        struct bl_lab_row row = {.values = v,
                                 .ranks = ranks,
                                 .average = s->averages[i / s->algorithm_count],
                                 .algorithm = s->algorithms[i % s->algorithm_count]};
        rc = measure(s, &row, terms, result, r, err);
        if (rc == 0) {
            r->rows[r->row_count++] = row;
        } else if (s->all && err->code == BL_EXIT_USAGE) {
            char *text = bl_format("left out: %s", err->text);
            note(r, text != NULL ? text : "left out");
            free(text);
            rc = 0;
        }
    }
    bl_lab_terms_free(terms);
    return rc;
}

int bl_lab_run(const struct bl_lab_setup *s, struct bl_lab_result *out, struct bl_error *err)
{
    struct bl_lab_result r = {0};
    float *result = NULL;
    size_t most = s->value_count * s->ranks_count * s->average_count * s->algorithm_count;
    int rc = begin(s, &result, err);
    r.rows = calloc(most, sizeof *r.rows);
    if (rc == 0 && r.rows == NULL)
        rc = bl_error_set(err, BL_EXIT_FAILED, "out of memory");
    for (size_t i = 0; rc == 0 && i < s->value_count * s->ranks_count; i++)
        rc = run_terms(s, &s->values[i / s->ranks_count], (uint32_t)s->ranks[i % s->ranks_count],
                       result, &r, err);
    bl_free(result);
    if (rc == 0 && r.notes.failed)
        rc = bl_error_set(err, BL_EXIT_FAILED, "out of memory");
    if (rc == 0)
        *out = r;
    else
        bl_lab_free(&r);
    return rc;
}

static int compare_terms(const struct bl_lab_setup *s, struct bl_lab_difference *d,
                         struct bl_lab_terms *terms, float *result, struct bl_error *err)
{
    const float *a = result, *b = result + s->elements;
    uint64_t differ = 0;
    double squares = 0, distance = 0;
    for (int i = 0; i < 2; i++) {
        struct bl_sum_format f = format_of(s, s->algorithms[i], d->average);
        if (sum_terms(s, d->ranks, &f, terms, result + i * s->elements, NULL, err) != 0)
            return -1;
    }
    for (uint64_t e = 0; e < s->elements; e++) {
        double difference = (double)a[e] - (double)b[e];
        differ += memcmp(&a[e], &b[e], sizeof *a) != 0;
        distance += difference * difference;
        squares += (double)b[e] * (double)b[e];
    }
    d->share = (double)differ / (double)s->elements;
    d->distance = sqrt(distance / squares);
    return 0;
}

int bl_lab_compare(const struct bl_lab_setup *s, struct bl_lab_result *out, struct bl_error *err)
{
    struct bl_lab_result r = {0};
    struct bl_lab_terms *terms = NULL;
    float *result = NULL;
    int rc = begin(s, &result, err);
    r.differences =
        calloc(s->value_count * s->ranks_count * s->average_count, sizeof *r.differences);
    if (rc == 0 && r.differences == NULL)
        rc = bl_error_set(err, BL_EXIT_FAILED, "out of memory");
    for (size_t i = 0; rc == 0 && i < s->value_count * s->ranks_count; i++) {
        struct bl_lab_difference d = {.values = &s->values[i / s->ranks_count],
                                      .ranks = (uint32_t)s->ranks[i % s->ranks_count]};
        bl_lab_terms_free(terms);
        terms = NULL;
        rc = bl_lab_terms_make(d.values, d.ranks, s->elements, s->seed, s->backend, &terms, err);
        for (size_t k = 0; rc == 0 && k < s->average_count; k++) {
            d.average = s->averages[k];
            rc = compare_terms(s, &d, terms, result, err);
            r.differences[r.difference_count++] = d;
        }
    }
    bl_lab_terms_free(terms);
    bl_free(result);
    if (rc == 0)
        *out = r;
    else
        bl_lab_free(&r);
    return rc;
}

void bl_lab_free(struct bl_lab_result *r)
{
    free(r->rows);
    free(r->differences);
    bl_text_free(&r->notes);
    *r = (struct bl_lab_result){0};
}

/* ---- the order of one element ---- */

/* "1 2 3 0" for a chain; a sum that is added to another one stands in brackets. */
static int program_text(const struct bl_order *o, uint32_t program, struct bl_text *out,
                        struct bl_error *err)
{
    uint32_t depth = bl_order_depth(o), top = 0, count[3] = {0};
    struct bl_text *stack = calloc((size_t)depth + 1, sizeof *stack);
    int rc = 0;
    if (stack == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "out of memory");
    for (uint32_t i = 0; i < bl_order_length(o, program); i++) {
        struct bl_order_step step;
        bl_order_step(o, program, i, &step);
        if (step.op == BL_ORDER_SET) {
            bl_text_add(&stack[top++], "%" PRIu32, step.rank);
            continue;
        }
        count[step.rounding]++;
        if (step.op == BL_ORDER_ADD) {
            bl_text_add(&stack[top - 1], " %" PRIu32, step.rank);
        } else {
            struct bl_text *b = &stack[--top];
            int single = b->text != NULL && strchr(b->text, ' ') == NULL;
            bl_text_add(&stack[top - 1], single ? " %s" : " (%s)", b->text ? b->text : "");
            stack[top - 1].failed |= b->failed;
            bl_text_free(b);
            *b = (struct bl_text){0};
        }
    }
    bl_text_add(out, "  %s\n", stack[0].text != NULL ? stack[0].text : "");
    bl_text_add(out,
                "  adds: %" PRIu32 " exact in fp32, %" PRIu32 " rounded to sum, %" PRIu32
                " rounded to sum and wire\n",
                count[BL_ORDER_EXACT], count[BL_ORDER_SUM], count[BL_ORDER_WIRE]);
    if (stack[0].failed || out->failed)
        rc = bl_error_set(err, BL_EXIT_FAILED, "out of memory");
    for (uint32_t i = 0; i <= depth; i++)
        bl_text_free(&stack[i]);
    free(stack);
    return rc;
}

static int order_text(const struct bl_lab_setup *s, uint32_t ranks, uint32_t algorithm,
                      uint64_t element, struct bl_text *out, struct bl_error *err)
{
    struct bl_order_setup setup = order_of(s, ranks, algorithm);
    struct bl_order *o = NULL;
    if (bl_order_make(&setup, &o, err) != 0)
        return -1;
    struct bl_order_piece piece;
    bl_order_piece(o, bl_order_find(o, element), &piece);
    bl_order_text(o, out);
    bl_text_add(out,
                "\n  element %" PRIu64 " is in [%" PRIu64 ", %" PRIu64 "); rank %" PRIu32
                " has its sum first\n",
                element, piece.begin, piece.end, piece.owner);
    int rc = program_text(o, piece.program, out, err);
    bl_order_free(o);
    return rc;
}

int bl_lab_order(const struct bl_lab_setup *s, uint64_t element, struct bl_text *out,
                 struct bl_error *err)
{
    if (element >= s->elements)
        return bl_error_set(err, BL_EXIT_USAGE,
                            "--order %" PRIu64 ": there are elements 0 ... %" PRIu64
                            "; --elements says how many",
                            element, s->elements - 1);
    for (size_t i = 0; i < s->ranks_count * s->algorithm_count; i++) {
        uint32_t algorithm = s->algorithms[i % s->algorithm_count];
        uint32_t ranks = (uint32_t)s->ranks[i / s->algorithm_count];
        if (order_text(s, ranks, algorithm, element, out, err) == 0)
            continue;
        if (!s->all || err->code != BL_EXIT_USAGE)
            return -1;
        bl_text_add(out, "left out: %s\n", err->text);
    }
    return 0;
}
