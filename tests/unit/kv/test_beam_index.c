/* Attention over reordered beams: `segment`, whose beams read each other's entries, must equal
 * `upfront`, whose beams are copied, bit for bit. Beams of two prompts in one batch are
 * reordered at every token: by random parents, in families that never have a common ancestor
 * again, or by permutations; long enough for entries to move to the first tail. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attn/attn.h"
#include "quant/cache_types.h"
#include "quant/kv_entries.h"
#include "base/threads.h"
#include "tests/unit/cache.h"

enum {
    KV_HEADS = 2,
    HEADS = 6,
    D = 40,
    WIDTH = KV_HEADS * D,
    PROMPTS = 2,
    BEAMS = 8,
    SEQS = PROMPTS * BEAMS
};
enum { PROMPT = 70, ANSWER = 150, N = PROMPT + ANSWER, OUT = SEQS * HEADS * D };

enum swaps { ANY, FAMILIES, PERMUTATIONS, SWAPS };

static unsigned seed;
static size_t draw(size_t below) { return (size_t)rand_r(&seed) % below; }

static float draw_float(void) { return (float)draw(2001) / 1000 - 1; }

/* A cache, and the sequence of each beam. */
struct side {
    struct kv *kv;
    struct attn *attn;
    size_t seq[SEQS];
    float out[OUT];
};

static float rows[SEQS][2][PROMPT * WIDTH]; /* of K and V, of every beam */
static float q[OUT];

static void append(struct side *s, size_t beam, size_t n)
{
    struct err err;
    check(kv_ensure(s->kv, s->seq[beam], n, &err) == 0, "no room: %s", err.text);
    cache_append(s->kv, s->seq[beam], 0, rows[beam][0], rows[beam][1], WIDTH);
}

static void begin(struct side *s, size_t width)
{
    struct err err;
    for (size_t beam = 0; beam < SEQS; beam++)
        s->seq[beam] = beam;
    for (size_t first = 0; first < SEQS; first += BEAMS) {
        append(s, first, PROMPT);
        kv_commit(s->kv, first, PROMPT);
        for (size_t w = 1; w < width; w++)
            check(kv_fork(s->kv, first + w, first, PROMPT, &err) == 0, "no fork: %s", err.text);
    }
}

/* Appends a token to each beam and computes its attention. */
static void step(struct side *s, size_t width)
{
    struct err err;
    struct attn_query query[SEQS];
    size_t n = 0;
    for (size_t beam = 0; beam < SEQS; beam++)
        if (beam % BEAMS < width) {
            append(s, beam, 1);
            query[n] = (struct attn_query){s->seq[beam], beam, 1, NULL, NULL};
            n++;
        }
    const struct attn_step at = {s->kv, kernels_select(NULL, &err), query, n, NULL};
    const struct attn_layer layer = {.index = 0};
    check(attn_begin(s->attn, &at, &err) == 0 && attn_run(s->attn, &at, &layer, q, s->out, &err) == 0,
          "no attention: %s", err.text);
    for (size_t i = 0; i < n; i++)
        kv_commit(s->kv, query[i].seq, 1);
}

static void choose_parents(size_t *parent, size_t width, enum swaps swaps)
{
    const size_t family = swaps == FAMILIES ? div_up(width, 2) : width;
    for (size_t i = 0; i < width; i++) {
        const size_t first = i / family * family;
        parent[i] = swaps == PERMUTATIONS ? i : first + draw(size_min(family, width - first));
    }
    for (size_t i = width; swaps == PERMUTATIONS && i-- > 1;) {
        const size_t j = draw(i + 1), was = parent[i];
        parent[i] = parent[j];
        parent[j] = was;
    }
}

static bool same(const struct side *a, const struct side *b, size_t width, bool exact)
{
    bool all = true;
    for (size_t i = 0; i < SEQS * HEADS * cache_v_width(D) && all; i++)
        if (i / (HEADS * cache_v_width(D)) % BEAMS < width)
            all = exact ? memcmp(&a->out[i], &b->out[i], sizeof *a->out) == 0
                        : fabsf(a->out[i] - b->out[i]) < 1e-4f;
    return all;
}

static void test(enum dtype type, const char *backend, size_t width, enum swaps swaps)
{
    struct err err;
    const struct kv_shape shape = cache_shape(1, KV_HEADS, D, N, type);
    const struct attn_shape attn_shape = {
        .heads = HEADS, .kv_heads = KV_HEADS, .head_dim = D, .v_dim = cache_v_dim(D)};
    const struct attn_limits limits = {.positions = N, .step_rows = SEQS, .queries = SEQS};
    const struct attn_backend *found = attn_find(backend, &err);
    static struct side side[2];
    size_t parent[BEAMS];
    for (int i = 0; i < 2; i++) {
        side[i].kv = cache_of(i ? "segment" : "upfront", &shape, SEQS);
        if (!found || attn_open(&side[i].attn, found, &attn_shape, 1, &limits, &err) < 0) {
            check(false, "%s", err.text);
            exit(1);
        }
        begin(&side[i], width);
    }
    for (size_t n = 0; n < ANSWER; n++) {
        for (size_t i = 0; i < SEQS; i++)
            for (size_t j = 0; j < 2 * WIDTH; j++)
                rows[i][j / WIDTH][j % WIDTH] = draw_float();
        for (size_t i = 0; i < OUT; i++)
            q[i] = draw_float();
        step(&side[0], width);
        step(&side[1], width);
        if (!check(same(&side[0], &side[1], width, strcmp(backend, "fused") == 0),
                   "%s, %s, %zu beams, swaps %d: token %zu differs", backend, cache_type_name(type),
                   width, (int)swaps, n))
            break;
        for (size_t first = 0; first < SEQS; first += BEAMS) {
            choose_parents(parent, width, swaps);
            for (int i = 0; i < 2; i++)
                check(kv_reorder(side[i].kv, side[i].seq + first, parent, width, &err) == 0,
                      "no order");
        }
    }
    for (int i = 0; i < 2; i++) {
        attn_close(side[i].attn);
        kv_close(side[i].kv);
    }
}

static void test_all(void)
{
    for (size_t i = 0; i < SEQS; i++)
        for (size_t j = 0; j < 2 * PROMPT * WIDTH; j++)
            rows[i][j / (PROMPT * WIDTH)][j % (PROMPT * WIDTH)] = draw_float();
    for (size_t t = 0; cache_types[t].name; t++)
        if (!v_in_k || !kv_type_rotated(cache_types[t].type)) /* V is no whole blocks of K */
            for (int swaps = (int)(t % check_every(2)); swaps < SWAPS; swaps += (int)check_every(2))
                test(cache_types[t].type, "fused",
                     (const size_t[]){4, 8, 3, 2, 6}[(t + (size_t)swaps) % 5], (enum swaps)swaps);
    test(DTYPE_F32, "blas", 4, ANY);
    test(DTYPE_BF16, "blas", 4, FAMILIES);
}

int main(void)
{
    kernels_setup();
    threads_set(2);
    seed = (unsigned)check_seed(1);
    for (int i = 0; i < 2; i++) {
        v_in_k = i;
        test_all();
    }
    return check_result();
}
