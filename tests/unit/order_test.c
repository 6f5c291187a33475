/* Orders of summation: against tables written by hand, against the rules of NCCL 2.30 followed one
 * element at a time, and by a probe that sees results only. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "base/random.h"
#include "base/strings.h"
#include "collectives/order.h"
#include "sum_reference.h"

static struct bl_order *make(const struct bl_cluster_options *cluster, uint32_t algorithm,
                             uint32_t collective, uint32_t ranks, uint64_t elements, uint32_t bytes)
{
    struct bl_order_setup setup = {.ranks = ranks,
                                   .algorithm = algorithm,
                                   .collective = collective,
                                   .cluster = cluster,
                                   .elements = elements,
                                   .element_bytes = bytes};
    struct bl_error err = BL_ERROR_INIT;
    struct bl_order *o = NULL;
    if (bl_order_make(&setup, &o, &err) < 0)
        fail_msg("%s", err.text);
    return o;
}

static struct bl_order_piece piece_of(const struct bl_order *o, uint64_t element)
{
    struct bl_order_piece piece;
    for (uint64_t k = 0;; k++) {
        bl_order_piece(o, k, &piece);
        if (element < piece.end)
            return piece;
    }
}

/* "set 1, add 2, merge 0" as "1 +2 &0" */
static void expect(const struct bl_order *o, uint64_t element, const char *want)
{
    struct bl_order_piece piece = piece_of(o, element);
    struct bl_text text = {0};
    for (uint32_t i = 0; i < bl_order_length(o, piece.program); i++) {
        static const char *const marks[] = {"", "+", "&"};
        struct bl_order_step step;
        bl_order_step(o, piece.program, i, &step);
        bl_text_add(&text, "%s%s%u", i > 0 ? " " : "", marks[step.op], step.rank);
    }
    if (strcmp(text.text, want) != 0)
        fail_msg("element %llu: \"%s\", not \"%s\"", (unsigned long long)element, text.text, want);
    bl_text_free(&text);
}

/* ---- by hand ----------------------------------------------------------------------------------
 */

static void test_ring(void **state)
{
    struct bl_cluster_options c = plain_cluster();
    static uint32_t rings[] = {0, 1, 2, 3, 0, 3, 2, 1};
    (void)state;
    c.channels = 16; /* 8 of them: a part has 8192 elements, NCCL's least; chunks of 1024 */
    struct bl_order *o = make(&c, BL_ALGORITHM_RING, BL_COLLECTIVE_ALL_REDUCE, 8, 65536, 2);
    expect(o, 600, "1 +2 +3 +4 +5 +6 +7 +0");
    expect(o, 1023, "1 +2 +3 +4 +5 +6 +7 +0");
    expect(o, 1024, "2 +3 +4 +5 +6 +7 +0 +1");
    expect(o, 8191, "0 +1 +2 +3 +4 +5 +6 +7");
    expect(o, 8192, "1 +2 +3 +4 +5 +6 +7 +0");
    assert_int_equal(bl_order_pieces(o), 64);
    bl_order_free(o);

    /* Channel k has list k modulo 2; owner and order go by the list. */
    c.ring_order = rings;
    c.rings = 2;
    c.ring_length = 4;
    o = make(&c, BL_ALGORITHM_RING, BL_COLLECTIVE_ALL_REDUCE, 4, 65536, 2);
    expect(o, 0, "1 +2 +3 +0");
    expect(o, 8192, "3 +2 +1 +0");
    expect(o, 8192 + 2048, "2 +1 +0 +3");
    assert_int_equal(piece_of(o, 8192 + 2048).owner, 3);
    expect(o, 16384, "1 +2 +3 +0");
    bl_order_free(o);
    o = make(&c, BL_ALGORITHM_RING, BL_COLLECTIVE_REDUCE_SCATTER, 4, 1 << 20, 2);
    expect(o, (1 << 18) + 5, "2 +3 +0 +1"); /* block 1, the first channel */
    expect(o, (1 << 19) - 5, "0 +3 +2 +1"); /* the last one */
    assert_int_equal(piece_of(o, (1 << 19) - 5).owner, 1);
    bl_order_free(o);

    c.rings = 0;
    o = make(&c, BL_ALGORITHM_RING, BL_COLLECTIVE_REDUCE_SCATTER, 4, 10, 2); /* blocks of 3 */
    expect(o, 2, "1 +2 +3 +0");
    expect(o, 3, "2 +3 +0 +1");
    expect(o, 9, "0 +1 +2 +3");
    assert_int_equal(bl_order_pieces(o), 4);
    bl_order_free(o);
}

static void test_others(void **state)
{
    struct bl_cluster_options c = plain_cluster();
    (void)state;
    struct bl_order *o = make(&c, BL_ALGORITHM_ALLTOALL, 0, 3, 10, 4);
    expect(o, 0, "0 +1 +2");
    expect(o, 9, "0 +1 +2");
    assert_int_equal(piece_of(o, 9).owner, 2);
    bl_order_free(o);
    o = make(&c, BL_ALGORITHM_PAIRWISE, 0, 8, 10, 4);
    expect(o, 0, "0 +1 2 +3 &0 4 +5 6 +7 &4 &0");
    bl_order_free(o);
    o = make(&c, BL_ALGORITHM_PAIRWISE, 0, 5, 10, 4);
    expect(o, 0, "0 +1 +2 3 +4 &0");
    bl_order_free(o);
    o = make(&c, BL_ALGORITHM_TREE, 0, 8, 10, 4); /* one node: a chain, the last rank first */
    expect(o, 0, "7 +6 +5 +4 +3 +2 +1 +0");
    bl_order_free(o);
    /* Four nodes of one rank. First tree: 0 <- 2 <- {1, 3}; second: mirrored, 3 <- 1 <- {2, 0}. */
    c.ranks_per_node = 1;
    o = make(&c, BL_ALGORITHM_TREE, 0, 4, 1 << 20, 4);
    expect(o, 0, "1 +2 3 &2 +0");
    expect(o, (1 << 20) - 1, "2 +1 0 &1 +3");
    assert_int_equal(piece_of(o, 0).owner, 0);
    assert_int_equal(piece_of(o, (1 << 20) - 1).owner, 3);
    bl_order_free(o);
    /* Two nodes of three, pattern 1: child 1 joins at the top of the chain. */
    c.ranks_per_node = 3;
    o = make(&c, BL_ALGORITHM_TREE, 0, 6, 1 << 20, 4);
    expect(o, 0, "2 +1 +0 5 +4 +3 &0");
    bl_order_free(o);
    o = make(&c, BL_ALGORITHM_NVLS, 0, 6, 1 << 20, 4);
    expect(o, 0, "0 +1 +2 3 +4 +5 &0");
    bl_order_free(o);
    /* Block 1 of 3 belongs to local rank 1; its first chunk ends at node 0. */
    o = make(&c, BL_ALGORITHM_HYBRID, 0, 6, 3 << 10, 4);
    expect(o, 1 << 10, "5 +3 +4 2 +0 +1 &1");
    assert_int_equal(piece_of(o, 1 << 10).owner, 1);
    bl_order_free(o);
}

/* ---- NCCL's rules, one element at a time --------------------------------------------------------
 */

/* As a separate program printed them that follows the rules of NCCL 2.30 for bf16 and a collective
 * that is launched alone. */
static void test_layout(void **state)
{
    static const struct {
        uint32_t ranks, channels;
        int32_t protocol;
        uint64_t elements, element;
        uint32_t first; /* rank whose value is first for that element */
    } cases[] = {
        {8, 16, 0, 65536, 600, 1},
        {8, 16, 0, 65536, 65535, 0},
        {8, 16, 0, 1000001, 777777, 7},
        {5, 7, 0, 1000001, 500000, 2},
        {5, 7, 0, 1000001, 999999, 0},
        {24, 16, 0, 13107200, 9999999, 5},
        {24, 16, 0, 13107200, 1, 1},
        {8, 16, 1, 13107200, 5555555, 0},
        {8, 16, 2, 13107200, 5555555, 7},
        {3, 16, 1, 100003, 77777, 2},
        {3, 16, 2, 100003, 77777, 2},
        {6, 2, 0, 4096, 4000, 0},
        {128, 16, 0, 26214400, 12345678, 69},
        {8, 16, 0, 50000000, 48111222, 4},
        {2, 1, 0, 50000000, 31000000, 0},
        {12, 5, 2, 9999, 9000, 6},
        {7, 16, 0, 7, 3, 1},
        {16, 3, 1, 300000, 299999, 0},
        {64, 24, 2, 3000000, 1999999, 17},
        {64, 24, 0, 3000000, 1499999, 29},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bl_cluster_options c = plain_cluster();
        c.channels = cases[i].channels;
        c.protocol = cases[i].protocol;
        struct bl_order *o = make(&c, BL_ALGORITHM_RING, BL_COLLECTIVE_ALL_REDUCE, cases[i].ranks,
                                  cases[i].elements, 2);
        struct bl_order_step step;
        bl_order_step(o, piece_of(o, cases[i].element).program, 0, &step);
        if (step.rank != cases[i].first)
            fail_msg("case %zu: rank %u is first, not %u", i, step.rank, cases[i].first);
        bl_order_free(o);
    }
}

struct tree {
    uint32_t nodes, per_node, pattern;
    int second, model;
    const float *x;
};

static int parent(const struct tree *t, int node)
{
    int n = (int)t->nodes, r = !t->second ? node : n % 2 == 0 ? n - 1 - node : (node + n - 1) % n;
    if (r == 0)
        return -1;
    int bit = r & -r, up = (r ^ bit) | bit << 1;
    if (up >= n)
        up = r ^ bit;
    return !t->second ? up : n % 2 == 0 ? n - 1 - up : (up + 1) % n;
}

/* What rank `local` of a node sends up: own, + the chain, + child nodes, in this order. Children
 * of a node are those that name it as their parent; the one before it in the tree's count is
 * child 0. */
static float up(const struct tree *t, int node, uint32_t local)
{
    float a = t->x[(uint32_t)node * t->per_node + local];
    int n = (int)t->nodes;
    if (t->model) {
        a = 0;
        for (uint32_t j = 0; j < t->per_node; j++)
            a += t->x[(uint32_t)node * t->per_node + j];
        a = bl_bf16_nearest(a);
    } else if (local + 1 < t->per_node) {
        a = bl_bf16_nearest(a + up(t, node, local + 1));
    }
    for (int slot = 0; slot < 2; slot++)
        for (int k = 0; k < n; k++) {
            /* Position in the tree's own count. */
            int rank[2] = {k, node};
            for (int i = 0; t->second && i < 2; i++)
                rank[i] = n % 2 == 0 ? n - 1 - rank[i] : (rank[i] + n - 1) % n;
            int top = t->model || t->per_node == 1 || t->pattern == 3;
            uint32_t at = top ? 0 : t->pattern == 2 ? 1 : 1 - (uint32_t)slot;
            if (parent(t, k) == node && (rank[0] > rank[1]) == slot && at == local)
                a = bl_bf16_nearest(a + up(t, k, 0));
        }
    return a;
}

/* The program's value, in bf16. */
static float program_value(const struct bl_order *o, uint32_t program, const float *x)
{
    float stack[64];
    int top = -1;
    for (uint32_t i = 0; i < bl_order_length(o, program); i++) {
        struct bl_order_step step;
        bl_order_step(o, program, i, &step);
        if (step.op == BL_ORDER_SET)
            stack[++top] = x[step.rank];
        else if (step.op == BL_ORDER_ADD)
            stack[top] += x[step.rank];
        else {
            top--;
            stack[top] += stack[top + 1];
        }
        if (step.rounding != BL_ORDER_EXACT)
            stack[top] = bl_bf16_nearest(stack[top]);
        assert_true(top < (int)bl_order_depth(o));
    }
    assert_int_equal(top, 0);
    return stack[0];
}

static void test_tree_values(void **state)
{
    static float x[4 * 97];
    (void)state;
    for (uint32_t per_node = 1; per_node <= 4; per_node++)
        for (uint32_t nodes = 2; nodes <= 97; nodes += nodes < 20 ? 1 : 11)
            for (uint32_t pattern = 1; pattern <= 4; pattern++) { /* 4: nvls */
                struct bl_cluster_options c = plain_cluster();
                c.ranks_per_node = per_node;
                c.channels = 2;
                c.tree_pattern = pattern < 4 ? pattern : 1;
                struct bl_order *o = make(&c, pattern < 4 ? BL_ALGORITHM_TREE : BL_ALGORITHM_NVLS,
                                          BL_COLLECTIVE_ALL_REDUCE, nodes * per_node, 1 << 20, 2);
                assert_int_equal(bl_order_programs(o), 2);
                for (uint32_t trial = 0; trial < 16; trial++) {
                    for (uint32_t r = 0; r < nodes * per_node; r++)
                        x[r] = bl_bf16_nearest((float)bl_random_normal(trial, nodes, r));
                    for (int second = 0; second < 2; second++) {
                        struct bl_order_piece piece = piece_of(o, second ? (1 << 20) - 1 : 0);
                        struct tree t = {nodes, per_node, pattern, second, pattern == 4, x};
                        float want = up(&t, (int)(piece.owner / per_node), 0);
                        assert_int_equal(parent(&t, (int)(piece.owner / per_node)), -1);
                        assert_true(program_value(o, piece.program, x) == want);
                    }
                }
                bl_order_free(o);
            }
}

/* ---- every order --------------------------------------------------------------------------------
 */

/* Pieces cover the buffer; every program has every rank once and ends where the owner is. */
static void check(const struct bl_order *o, uint32_t ranks, uint64_t elements, uint8_t *seen)
{
    uint64_t at = 0;
    struct bl_order_piece piece;
    for (uint64_t k = 0; k < bl_order_pieces(o); k++) {
        struct bl_order_step step = {0};
        uint32_t leaves = 0, stack = 0, deepest = 0;
        bl_order_piece(o, k, &piece);
        assert_true(piece.begin == at && piece.end > at && piece.end <= elements);
        assert_true(piece.program < bl_order_programs(o) && piece.owner < ranks);
        at = piece.end;
        memset(seen, 0, ranks);
        for (uint32_t i = 0; i < bl_order_length(o, piece.program); i++) {
            bl_order_step(o, piece.program, i, &step);
            assert_true(step.at < ranks);
            if (step.op != BL_ORDER_MERGE) {
                assert_true(step.rank < ranks && !seen[step.rank]);
                seen[step.rank] = 1;
                leaves++;
            }
            stack += step.op == BL_ORDER_SET;
            stack -= step.op == BL_ORDER_MERGE;
            assert_true(stack > 0);
            deepest = stack > deepest ? stack : deepest;
        }
        assert_int_equal(leaves, ranks);
        assert_int_equal(stack, 1);
        assert_true(deepest <= bl_order_depth(o));
        assert_int_equal(step.at, piece.owner);
    }
    assert_true(at == elements);
}

static void test_every_order(void **state)
{
    static const uint32_t worlds[] = {1, 2, 3, 7, 8, 12, 24, 64};
    static const uint32_t per_node[] = {8, 1, 3, 1, 4, 3, 8, 8};
    uint8_t seen[64];
    (void)state;
    for (size_t w = 0; w < 8; w++)
        for (uint32_t n = 0; n < 12 * 24; n++) {
            static const uint64_t lengths[] = {1, 2, 7, 8, 63, 65, 4097, 50000};
            struct bl_cluster_options c = plain_cluster();
            uint32_t algorithm = n % 6, collective = n / 6 % 2;
            if (algorithm == BL_ALGORITHM_TREE)
                collective = 0;
            c.ranks_per_node = per_node[w];
            c.channels = n / 12 % 3 * 7;
            c.protocol = (int32_t)(n / 12 % 3);
            c.chunk = n / 36 % 2 * 48;
            struct bl_order *o = make(&c, algorithm, collective, worlds[w], lengths[n / 36], 2);
            check(o, worlds[w], lengths[n / 36], seen);
            bl_order_free(o);
        }
}

/* The number of ranks that NCCL has never seen: no table of W^2, no deep stack. */
static void test_many_ranks(void **state)
{
    (void)state;
    for (uint32_t algorithm = 0; algorithm < 6; algorithm++) {
        struct bl_cluster_options c = plain_cluster();
        struct bl_order *o = make(&c, algorithm, 0, 65536, 100000000, 2);
        struct bl_order_piece piece;
        struct bl_order_step step;
        bl_order_piece(o, bl_order_pieces(o) - 1, &piece);
        assert_true(piece.end == 100000000);
        bl_order_step(o, piece.program, bl_order_length(o, piece.program) - 1, &step);
        assert_int_equal(step.at, piece.owner);
        /* Nodes of 8 ranks: a tree over 2^13 of them. */
        static const uint32_t depth[] = {1, 1, 13, 13, 16, 2};
        assert_int_equal(bl_order_depth(o), depth[algorithm]);
        bl_order_free(o);
    }
}

/* ---- a probe ------------------------------------------------------------------------------------
 */

/* All ranks have 1, but a has 2^12 and b has -2^12, whose neighbours absorb a 1 (half a step is
 * 16): the sum counts the ranks that are not between them. Over all pairs this is the order. */
static void test_probe(void **state)
{
    enum { W = 8 };
    struct bl_cluster_options c = plain_cluster();
    (void)state;
    c.channels = 2;
    struct bl_order *o = make(&c, BL_ALGORITHM_RING, BL_COLLECTIVE_ALL_REDUCE, W, 4096, 2);
    for (uint64_t element = 0; element < 4096; element += 255) {
        uint32_t program = piece_of(o, element).program, place[W];
        for (uint32_t a = 0; a < W; a++) {
            struct bl_order_step step;
            bl_order_step(o, program, a, &step);
            place[step.rank] = a;
        }
        for (uint32_t a = 0; a < W; a++)
            for (uint32_t b = 0; b < W; b++) {
                float x[W];
                if (a == b)
                    continue;
                for (uint32_t r = 0; r < W; r++)
                    x[r] = r == a ? 0x1p12f : r == b ? -0x1p12f : 1;
                uint32_t last = place[a] < place[b] ? place[b] : place[a];
                /* What stands before the first of them is absorbed too. */
                float want = (float)(W - 1 - last);
                assert_true(program_value(o, program, x) == want);
            }
    }
    bl_order_free(o);
}

/* ---- refusals -----------------------------------------------------------------------------------
 */

static void refused(struct bl_order_setup setup, const char *word)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_order *o = NULL;
    assert_int_equal(bl_order_make(&setup, &o, &err), -1);
    assert_null(o);
    assert_int_equal(err.code, BL_EXIT_USAGE);
    if (strstr(err.text, word) == NULL)
        fail_msg("\"%s\" is not in: %s", word, err.text);
}

static void test_refused(void **state)
{
    struct bl_cluster_options c = plain_cluster();
    static uint32_t twice[] = {0, 1, 1, 2}, beyond[] = {0, 1, 2, 4};
    struct bl_order_setup s = {.ranks = 12, .cluster = &c, .elements = 5, .element_bytes = 2};
    (void)state;
    s.algorithm = BL_ALGORITHM_TREE;
    refused(s, "ranks_per_node to 6 or 12");
    s.algorithm = BL_ALGORITHM_HYBRID;
    refused(s, "ranks_per_node to 6 or 12");
    s.algorithm = BL_ALGORITHM_TREE;
    s.ranks = 8;
    s.collective = BL_COLLECTIVE_REDUCE_SCATTER;
    refused(s, "reduce_scatter");
    s.algorithm = BL_ALGORITHM_RING;
    s.ranks = 4;
    c.rings = 1;
    c.ring_length = 4;
    c.ring_order = twice;
    refused(s, "rank 1 is there twice");
    c.ring_order = beyond;
    refused(s, "rank 4 is none");
    c.ring_length = 3;
    refused(s, "lists of 3 ranks, but there are 4");
    c.rings = 0;
    s.algorithm = 6;
    refused(s, "algorithm 6");
    s.algorithm = 0;
    s.collective = 2;
    refused(s, "collective 2");
    s.ranks = 0;
    refused(s, "0 ranks");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring),        cmocka_unit_test(test_others),
        cmocka_unit_test(test_layout),      cmocka_unit_test(test_tree_values),
        cmocka_unit_test(test_every_order), cmocka_unit_test(test_many_ranks),
        cmocka_unit_test(test_probe),       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
