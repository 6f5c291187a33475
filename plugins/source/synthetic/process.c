#include "process.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Streams of random numbers that build the process; sequences use streams of 2^32 and more. */
enum { STREAM_MIXTURE = 1, STREAM_ORDER = 1000 };

static const double sharpness = 2.0;

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t process_random(uint64_t key, uint64_t stream, uint64_t counter)
{
    const uint64_t gamma = 0x9e3779b97f4a7c15u;

    return mix(mix(mix(key + gamma) ^ stream) + gamma * (counter + 1));
}

/* [0, 1), 53 bits */
static double uniform(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-53;
}

static double normal(uint64_t key, uint64_t stream, uint64_t counter)
{
    double u = 1.0 - uniform(process_random(key, stream, 2 * counter)); /* (0, 1] */
    double v = uniform(process_random(key, stream, 2 * counter + 1));

    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

static void make_mixture(struct process *p)
{
    for (uint64_t i = 0; i < p->vocab; i++) {
        double *row = p->a + i * p->rank, sum = 0.0;
        for (uint64_t k = 0; k < p->rank; k++) {
            row[k] = exp(sharpness * normal(p->key, STREAM_MIXTURE, i * p->rank + k));
            sum += row[k];
        }
        for (uint64_t k = 0; k < p->rank; k++)
            row[k] /= sum;
    }
}

struct place {
    uint64_t draw, token;
};

static int by_draw(const void *left, const void *right)
{
    const struct place *l = left, *r = right;

    if (l->draw != r->draw)
        return l->draw < r->draw ? -1 : 1;
    return l->token < r->token ? -1 : l->token > r->token;
}

static void make_components(struct process *p, double exponent, struct place *places)
{
    double total = 0.0;

    for (uint64_t r = p->vocab; r-- > 0;) /* small terms first */
        total += pow((double)(1 + r), -exponent);
    for (uint64_t k = 0; k < p->rank; k++) {
        for (uint64_t j = 0; j < p->vocab; j++) {
            places[j].token = j;
            places[j].draw = process_random(p->key, STREAM_ORDER + k, j);
        }
        qsort(places, p->vocab, sizeof(*places), by_draw);
        for (uint64_t r = 0; r < p->vocab; r++)
            p->b[places[r].token * p->rank + k] = pow((double)(1 + r), -exponent) / total;
    }
}

/* pi = q B with q = q (B A): the power iteration runs in `rank` dimensions. q and next are
 * (rank,), m is (rank, rank). */
static int make_stationary(struct process *p, double *q, double *next, double *m)
{
    uint64_t n = p->rank;
    double change = 1.0;

    memset(m, 0, n * n * sizeof(*m));
    for (uint64_t k = 0; k < n; k++)
        for (uint64_t j = 0; j < p->vocab; j++)
            for (uint64_t l = 0; l < n; l++)
                m[k * n + l] += p->b[j * n + k] * p->a[j * n + l];
    for (uint64_t k = 0; k < n; k++)
        q[k] = 1.0 / (double)n;
    for (int round = 0; round < 100000 && change > 1e-15; round++) {
        double sum = 0.0;
        for (uint64_t l = 0; l < n; l++) {
            next[l] = 0.0;
            for (uint64_t k = 0; k < n; k++)
                next[l] += q[k] * m[k * n + l];
            sum += next[l];
        }
        change = 0.0;
        for (uint64_t l = 0; l < n; l++) {
            next[l] /= sum;
            change += fabs(next[l] - q[l]);
            q[l] = next[l];
        }
    }
    for (uint64_t j = 0; j < p->vocab; j++) {
        p->stationary[j] = 0.0;
        for (uint64_t k = 0; k < n; k++)
            p->stationary[j] += q[k] * p->b[j * n + k];
    }
    /* Rounding keeps the last digits moving; 1e-12 of mass is far below what a loss can show. */
    return change <= 1e-12 ? 0 : -1;
}

/* Vose's form of Walker's alias method for the n weights at distance `stride`: column c gives c
 * with probability accept[c], else alias[c]. `work` and `scaled` are (n,). */
static void make_alias(const double *weights, uint64_t stride, uint64_t n, double *accept,
                       uint32_t *alias, double *scaled, uint32_t *work)
{
    uint64_t small = 0, large = n;

    for (uint64_t j = 0; j < n; j++) {
        scaled[j] = weights[j * stride] * (double)n;
        if (scaled[j] < 1.0)
            work[small++] = (uint32_t)j;
        else
            work[--large] = (uint32_t)j;
    }
    while (small > 0 && large < n) {
        uint32_t s = work[--small], l = work[large];
        accept[s] = scaled[s];
        alias[s] = l;
        scaled[l] -= 1.0 - scaled[s];
        if (scaled[l] < 1.0) {
            large++;
            work[small++] = l;
        }
    }
    /* What is left differs from 1 by rounding only. */
    while (small > 0) {
        uint32_t s = work[--small];
        accept[s] = 1.0;
        alias[s] = s;
    }
    for (; large < n; large++) {
        accept[work[large]] = 1.0;
        alias[work[large]] = work[large];
    }
}

struct entropy_job {
    const struct process *p;
    double *rows; /* (vocab,) pi_i H(P_i) */
};

static void entropy_row(void *argument, uint64_t i)
{
    const struct entropy_job *job = argument;
    const struct process *p = job->p;
    double sum = 0.0;

    for (uint64_t j = 0; j < p->vocab; j++) {
        double probability = process_probability(p, i, j);
        sum -= probability * log(probability);
    }
    job->rows[i] = p->stationary[i] * sum;
}

double process_probability(const struct process *p, uint64_t from, uint64_t to)
{
    const double *a = p->a + from * p->rank, *b = p->b + to * p->rank;
    double sum = 0.0;

    for (uint64_t k = 0; k < p->rank; k++)
        sum += a[k] * b[k];
    return sum;
}

int32_t process_make(struct process *p, const struct bl_host *host, uint64_t key, uint64_t vocab,
                     uint64_t rank, double exponent, struct bl_error *err)
{
    struct place *places = host->allocate(host, vocab * sizeof(*places));
    double *scaled = host->allocate(host, vocab * sizeof(*scaled));
    uint32_t *work = host->allocate(host, vocab * sizeof(*work));
    double *small = host->allocate(host, (2 * rank + rank * rank) * sizeof(*small));
    struct entropy_job job = {p, scaled};
    int32_t answer = -1;

    memset(p, 0, sizeof(*p));
    p->host = host;
    p->key = key;
    p->vocab = vocab;
    p->rank = rank;
    p->a = host->allocate(host, vocab * rank * sizeof(*p->a));
    p->b = host->allocate(host, rank * vocab * sizeof(*p->b));
    p->stationary = host->allocate(host, vocab * sizeof(*p->stationary));
    p->accept = host->allocate(host, (rank + 1) * vocab * sizeof(*p->accept));
    p->alias = host->allocate(host, (rank + 1) * vocab * sizeof(*p->alias));
    if (!places || !scaled || !work || !small || !p->a || !p->b || !p->stationary || !p->accept ||
        !p->alias) {
        host->fail(host, err, "no memory for a process of %llu tokens and rank %llu",
                   (unsigned long long)vocab, (unsigned long long)rank);
        goto done;
    }
    make_mixture(p);
    make_components(p, exponent, places);
    if (make_stationary(p, small, small + rank, small + 2 * rank) != 0) {
        host->fail(host, err,
                   "the stationary distribution did not converge (vocab %llu, rank "
                   "%llu, exponent %g)",
                   (unsigned long long)vocab, (unsigned long long)rank, exponent);
        goto done;
    }
    for (uint64_t k = 0; k < rank; k++)
        make_alias(p->b + k, rank, vocab, p->accept + k * vocab, p->alias + k * vocab, scaled,
                   work);
    make_alias(p->stationary, 1, vocab, p->accept + rank * vocab, p->alias + rank * vocab, scaled,
               work);
    host->parallel_for(host, vocab, entropy_row, &job);
    p->entropy = 0.0;
    for (uint64_t i = 0; i < vocab; i++)
        p->entropy += job.rows[i];
    answer = 0;
done:
    if (answer != 0)
        process_free(p);
    host->release(host, places);
    host->release(host, scaled);
    host->release(host, work);
    host->release(host, small);
    return answer;
}

void process_free(struct process *p)
{
    if (!p || !p->host)
        return;
    p->host->release(p->host, p->a);
    p->host->release(p->host, p->b);
    p->host->release(p->host, p->stationary);
    p->host->release(p->host, p->accept);
    p->host->release(p->host, p->alias);
    memset(p, 0, sizeof(*p));
}

/* Token of table `table` (a component, or `rank` for the stationary distribution) from 64 random
 * bits: the column from the high part of u n, accepted by its fraction. */
static uint32_t pick(const struct process *p, uint64_t table, uint64_t bits)
{
    double x = uniform(bits) * (double)p->vocab;
    uint64_t column = (uint64_t)x, at;

    if (column >= p->vocab) /* u n may round up */
        column = p->vocab - 1;
    at = table * p->vocab + column;
    return x - (double)column < p->accept[at] ? (uint32_t)column : p->alias[at];
}

void process_draw(const struct process *p, uint64_t stream, uint64_t n, int32_t *tokens,
                  int32_t *last)
{
    uint32_t current = pick(p, p->rank, process_random(p->key, stream, 0));

    for (uint64_t t = 0; t < n; t++) {
        const double *row = p->a + current * p->rank;
        double u = uniform(process_random(p->key, stream, 2 * t + 1));
        uint64_t k = 0;

        tokens[t] = (int32_t)current;
        while (k + 1 < p->rank && u >= row[k])
            u -= row[k++];
        current = pick(p, k, process_random(p->key, stream, 2 * t + 2));
    }
    *last = (int32_t)current;
}
