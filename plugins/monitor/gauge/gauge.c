/* monitor gauge: the direction of the output matrix that the softmax cannot see.
 *
 * W (V, C) is the output matrix, V the true vocabulary, mu = (1/V) sum_v W_v its mean row. Adding
 * one vector to all rows shifts all logits of a token alike and leaves the loss as it is.
 *
 *     logits/gauge        ||mu||_2
 *     logits/gauge_ratio  ||mu||_2 / ( (1/V) sum_v ||W_v||_2 )
 *     logits/gauge_leak   || sum_v G_v ||_2 / ( sqrt(V) ||G||_F )
 *
 * G (V, C) is the cross-entropy part of W's gradient, reduced over ranks, and after a projection
 * where a regularizer has one (head_centering). In exact arithmetic its rows sum to zero: what is
 * left is rounding, a leak into a direction that no loss corrects. Equal rows would give 1,
 * independent entries of mean zero about 1 / sqrt(V).
 *
 * With tied weights the embedding's gradient is not flat along mu, so that gauge_leak has no
 * meaning and is absent; the log says so once. It is absent as well where G is zero.
 *
 * All sums are fp64 over fixed blocks of 256 rows that are added in row order: the same bits for
 * any number of threads. No options of its own; one pass over W and one over G a look.
 *
 * With model.logit_softcap or an element-wise transform the loss does see a common shift, and the
 * rows of G sum to that force: gauge_leak is no rounding then, but thousands of times as large.
 *
 * What it cannot do: tell rounding in the head's own product from rounding in the reduction over
 * ranks; compare arms that differ in just the reduction for that.
 */
#include <math.h>

#include <ballast/monitor.h>

enum { ROWS = 256 };

static const struct bl_option options[] = {{0}};

struct gauge {
    const struct bl_host *host;
    double *partial; /* (blocks, width + 2): column sums, sum of row norms, sum of squares */
    uint64_t size;   /* of partial, in doubles */
    int told;        /* that gauge_leak is absent */
};

struct pass {
    const float *data;
    uint64_t rows, width;
    double *partial;
};

static int32_t create(const struct bl_host *host, const void *values, void **self,
                      struct bl_error *err)
{
    (void)values;
    struct gauge *g = host->allocate(host, sizeof(*g));
    if (g == NULL)
        return host->fail(host, err, "no memory for %zu bytes", sizeof(*g));
    g->host = host;
    *self = g;
    return 0;
}

static void destroy(void *self)
{
    struct gauge *g = self;
    if (g == NULL)
        return;
    const struct bl_host *host = g->host;
    host->release(host, g->partial);
    host->release(host, g);
}

static uint32_t needs(const void *self)
{
    const struct gauge *g = self;
    return g->host->info->tied ? 0 : BL_MONITOR_CE_GRADIENT;
}

static void block(void *argument, uint64_t i)
{
    const struct pass *p = argument;
    double *sum = p->partial + i * (p->width + 2);
    uint64_t end = (i + 1) * ROWS < p->rows ? (i + 1) * ROWS : p->rows;
    for (uint64_t c = 0; c < p->width + 2; c++)
        sum[c] = 0.0;
    for (uint64_t r = i * ROWS; r < end; r++) {
        const float *row = p->data + r * p->width;
        double squares = 0.0;
        for (uint64_t c = 0; c < p->width; c++) {
            double x = (double)row[c];
            sum[c] += x;
            squares += x * x;
        }
        sum[p->width] += sqrt(squares);
        sum[p->width + 1] += squares;
    }
}

/* ||sum of rows||, sum of row norms and ||.||_F of a matrix. */
static int measure(struct gauge *g, const struct bl_tensor *t, double *column, double *norms,
                   double *frobenius, struct bl_error *err)
{
    const struct bl_host *host = g->host;
    uint64_t width = t->dims[1], blocks = (t->dims[0] + ROWS - 1) / ROWS;
    uint64_t size = blocks * (width + 2);
    if (g->size < size) {
        host->release(host, g->partial);
        g->size = 0;
        g->partial = host->allocate(host, size * sizeof(double));
        if (g->partial == NULL)
            return host->fail(host, err, "no memory for %llu partial sums",
                              (unsigned long long)size);
        g->size = size;
    }
    struct pass p = {t->data, t->dims[0], width, g->partial};
    host->parallel_for(host, blocks, block, &p);
    for (uint64_t i = 1; i < blocks; i++)
        for (uint64_t c = 0; c < width + 2; c++)
            g->partial[c] += g->partial[i * (width + 2) + c];
    double squares = 0.0;
    for (uint64_t c = 0; c < width; c++)
        squares += g->partial[c] * g->partial[c];
    *column = sqrt(squares);
    *norms = g->partial[width];
    *frobenius = sqrt(g->partial[width + 1]);
    return 0;
}

static int32_t observe(void *self, const struct bl_host *host, const struct bl_monitor_input *in,
                       struct bl_error *err)
{
    struct gauge *g = self;
    struct bl_tensor head = {.size = sizeof(head)}, gradient = {.size = sizeof(gradient)};
    double column, norms, frobenius;
    (void)in;
    if (host->find(host, host->info->head, BL_WEIGHT, &head) != 0 || head.ndim != 2)
        return host->fail(host, err, "there is no output matrix \"%s\" to look at",
                          host->info->head);
    if (measure(g, &head, &column, &norms, &frobenius, err) != 0)
        return -1;
    host->metric(host, "logits/gauge", column / (double)head.dims[0]);
    if (norms != 0.0)
        host->metric(host, "logits/gauge_ratio", column / norms);

    const char *why = NULL;
    if (host->info->tied)
        why = "the output matrix is the embedding, whose gradient is not flat along the mean row";
    else if (host->find(host, host->info->head, BL_CE_GRADIENT, &gradient) != 0)
        why = "the cross-entropy part of the head's gradient is not kept apart in this run";
    if (why != NULL) {
        if (!g->told)
            host->log(host, BL_LOG_INFO, "logits/gauge_leak is absent: %s", why);
        g->told = 1;
        return 0;
    }
    if (measure(g, &gradient, &column, &norms, &frobenius, err) != 0)
        return -1;
    if (frobenius != 0.0)
        host->metric(host, "logits/gauge_leak",
                     column / (sqrt((double)gradient.dims[0]) * frobenius));
    return 0;
}

static const struct bl_monitor_ops ops = {
    .create = create, .destroy = destroy, .needs = needs, .observe = observe};

BL_PLUGIN(BL_KIND_MONITOR, "gauge", "1.0", BL_DEVICE_CPU, ops, options, 0, NULL);
