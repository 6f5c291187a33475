/* A stationary Markov chain over `vocab` tokens whose entropy rate is known exactly.
 *
 *     P(j | i) = sum_k A(i, k) B(k, j)        A (vocab, rank), B (rank, vocab)
 *
 * Rows of A are softmax(2 N(0,1)); row k of B is Zipf's law, 1 / (1 + r)^exponent normalised, over
 * its own random order of the tokens. Every entry is positive, so the stationary distribution is
 * unique. No code of the trainer is used; the same key gives the same process everywhere. */
#ifndef BL_SOURCE_SYNTHETIC_PROCESS_H
#define BL_SOURCE_SYNTHETIC_PROCESS_H

#include <ballast/plugin.h>

struct process {
    const struct bl_host *host;
    uint64_t key, vocab, rank;
    double *a;          /* (vocab, rank) */
    double *b;          /* (vocab, rank): B transposed, so that P(i, j) reads two rows */
    double *stationary; /* (vocab,) pi = pi P */
    double entropy;     /* nats per token: -sum_i pi_i sum_j P_ij log P_ij */
    double *accept;     /* (rank + 1, vocab) alias tables: rows of B, then pi */
    uint32_t *alias;    /* (rank + 1, vocab) */
};

/* 64 bits, a pure function of its arguments: the SplitMix64 generator (Steele, Lea, Flood 2014)
 * started at a hash of (key, stream) and moved ahead `counter` steps. */
uint64_t process_random(uint64_t key, uint64_t stream, uint64_t counter);

int32_t process_make(struct process *p, const struct bl_host *host, uint64_t key, uint64_t vocab,
                     uint64_t rank, double exponent, struct bl_error *err);
void process_free(struct process *p);
double process_probability(const struct process *p, uint64_t from, uint64_t to);
/* Draws n + 1 tokens, the first from the stationary distribution; the last one apart. */
void process_draw(const struct process *p, uint64_t stream, uint64_t n, int32_t *tokens,
                  int32_t *last);

#endif
