/* Random forks, cuts and continuations under every policy: sequences do not affect each other.
 * Policy `segment`: prompts are stored once. */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/cache.h"
#include "kv/kv_policy.h"

enum { LAYERS = 2, KV_HEADS = 2, D = 4, WIDTH = KV_HEADS * D, N = 150, SEQS = 5 };

static unsigned seed;

static size_t row_bytes(void) { return cache_matrices() * LAYERS * WIDTH * sizeof(float); }

static size_t draw(size_t below) { return (size_t)rand_r(&seed) % below; }

static struct kv *open_cache(const char *text, size_t rows)
{
    const struct kv_shape shape = cache_shape(LAYERS, KV_HEADS, D, rows, DTYPE_F32);
    return cache_of(text, &shape, SEQS);
}

/* An element of the row named `row`. */
static float value(float row, size_t layer, size_t column, bool is_v)
{
    return row * 64 + (float)(layer * 32 + column * 2 + (is_v && !v_in_k));
}

static void add_rows(struct kv *kv, size_t seq, const float *row, size_t rows)
{
    struct err err;
    float k[N][WIDTH], v[N][WIDTH];
    check(kv_ensure(kv, seq, rows, &err) == 0, "no room");
    for (size_t l = 0; l < LAYERS; l++) {
        for (size_t i = 0; i < rows * WIDTH; i++) {
            k[i / WIDTH][i % WIDTH] = value(row[i / WIDTH], l, i % WIDTH, false);
            v[i / WIDTH][i % WIDTH] = value(row[i / WIDTH], l, i % WIDTH, true);
        }
        cache_append(kv, seq, l, k[0], v[0], WIDTH);
    }
}

static bool rows_are(struct kv *kv, size_t seq, const float *row, size_t n)
{
    struct err err;
    float rows[N][D];
    bool ok = kv_seq_info(kv, seq).n == n;
    for (size_t i = 0; i < 2 * LAYERS * KV_HEADS && ok; i++) {
        const size_t layer = i / 2 / KV_HEADS, head = i / 2 % KV_HEADS, is_v = i % 2;
        ok = kv_read(kv, seq, layer, is_v, head, rows, &err) == 0;
        for (size_t at = 0; at < n * D; at++)
            ok = ok && rows[at / D][at % D] == value(row[at / D], layer, head * D + at % D, is_v);
    }
    return ok;
}

/* Expected rows of a sequence, by name. */
struct test_model {
    float row[N];
    size_t n;
};

/* The most rows of a sequence of which none is dropped. */
static size_t most_rows(const struct kv *kv) { return size_min(N, kv_untrimmed_limit(kv)); }

/* Appends rows and accepts some. */
static void grow(struct kv *kv, size_t seq, struct test_model *m, float *name)
{
    float fresh[40] = {0};
    size_t kept[40], n = 0;
    const size_t rows = size_min(1 + draw(draw(3) ? 4 : 40), most_rows(kv) - m->n);
    for (size_t i = 0; i < rows; i++)
        fresh[i] = (*name)++;
    add_rows(kv, seq, fresh, rows);
    for (size_t i = 0; i < rows; i++)
        if (draw(4)) {
            kept[n++] = i;
            m->row[m->n++] = fresh[i];
        }
    kv_accept(kv, seq, kept, n);
}

static void change(struct kv *kv, struct test_model *m, float *name)
{
    struct err err;
    const size_t seq = draw(SEQS), other = (seq + 1 + draw(SEQS - 1)) % SEQS;
    const size_t what = draw(8);
    if (what == 0) {
        m[seq].n = draw(m[seq].n + 1);
        kv_truncate(kv, seq, m[seq].n);
    } else if (what <= 2) {
        m[other] = m[seq];
        m[other].n = draw(3) ? m[seq].n : draw(m[seq].n + 1);
        kv_truncate(kv, other, 0);
        check(kv_fork(kv, other, seq, m[other].n, &err) == 0, "no fork");
    } else if (m[seq].n < most_rows(kv)) {
        grow(kv, seq, &m[seq], name);
    }
}

static void test_random(const char *spec)
{
    struct kv *kv = open_cache(spec, N);
    struct test_model m[SEQS] = {0};
    float name = 1;
    for (int round = 0; round < 300; round++) {
        change(kv, m, &name);
        for (size_t s = 0; s < SEQS; s++)
            check(rows_are(kv, s, m[s].row, m[s].n), "%s, round %d: sequence %zu differs", spec, round,
                  s);
    }
    for (size_t s = 0; s < SEQS; s++)
        kv_truncate(kv, s, 0);
    check(kv->stats.resident_bytes == 0, "%s: %zu bytes are still there", spec,
          kv->stats.resident_bytes);
    kv_close(kv);
}

/* Sequence 0 has a prompt, which all others continue. */
static struct kv *after_prompt(size_t prompt, size_t rows)
{
    struct err err;
    struct kv *kv = open_cache("segment", N);
    float row[N] = {0};
    add_rows(kv, 0, row, prompt);
    kv_commit(kv, 0, prompt);
    for (size_t s = 1; s < SEQS; s++)
        check(kv_fork(kv, s, 0, rows, &err) == 0, "no fork");
    return kv;
}

/* Segment paper, eq. 3: the prompt once, and answers in steps of 16. */
static void test_memory(void)
{
    struct kv *kv = after_prompt(64, 64);
    const float row = 1;
    check(kv->stats.copied_rows == 0 && kv->stats.resident_bytes == 64 * row_bytes(),
          "%zu rows copied, %zu bytes there", kv->stats.copied_rows, kv->stats.resident_bytes);
    for (size_t n = 1; n <= 40; n++) {
        for (size_t s = 0; s < SEQS; s++) {
            add_rows(kv, s, &row, 1);
            kv_commit(kv, s, 1);
        }
        const size_t want = 64 + SEQS * ((n + 15) / 16) * 16;
        check(kv->stats.resident_bytes == want * row_bytes(), "%zu answer rows take %zu bytes", n,
              kv->stats.resident_bytes);
    }
    check(kv->stats.copied_rows == 0, "%zu rows copied", kv->stats.copied_rows);
    kv_truncate(kv, 0, 0);
    check(kv_shared_rows(kv, 1, 2) == 64 && kv_shared_rows(kv, 0, 1) == 0, "shared rows");
    /* A fork copies the answer, not the prompt. */
    struct err err;
    check(kv_fork(kv, 0, 3, 104, &err) == 0 && kv->stats.copied_rows == 40 &&
              kv_shared_rows(kv, 0, 3) == 64,
          "%zu rows copied", kv->stats.copied_rows);
    kv_close(kv);
}

/* The last, partial tile of a prompt is copied. Prompts that share a prefix share the rest with
 * their own forks. */
static void test_parts(void)
{
    struct err err;
    float row[N] = {0};
    struct kv *kv = after_prompt(70, 69);
    check(kv->stats.copied_rows == 6 + (SEQS - 1) * 5 && kv_shared_rows(kv, 2, 0) == 64,
          "%zu rows copied, %zu shared", kv->stats.copied_rows, kv_shared_rows(kv, 2, 0));
    kv_close(kv);
    kv = after_prompt(64, 32);
    add_rows(kv, 1, row, 48);
    kv_commit(kv, 1, 48);
    kv_truncate(kv, 2, 0);
    check(kv_fork(kv, 2, 1, 80, &err) == 0 && kv_shared_rows(kv, 1, 2) == 80 &&
              kv_shared_rows(kv, 2, 3) == 32,
          "%zu of two prompts, %zu of their beginning", kv_shared_rows(kv, 1, 2),
          kv_shared_rows(kv, 2, 3));
    kv_close(kv);
}

/* Beams of one prompt, reordered at random after each token; at the end one is truncated and
 * continued without effect on the others. Returns the rows that reordering copied. */
static size_t reorder(const char *spec, size_t prompt, size_t steps)
{
    struct err err;
    struct kv *kv = open_cache(spec, N);
    struct test_model m[SEQS] = {0};
    size_t seq[SEQS], parent[SEQS] = {0}, copied = 0;
    float name = 1;
    for (size_t i = 0; i < SEQS; i++)
        seq[i] = i;
    for (; m[0].n < prompt; m[0].n++)
        m[0].row[m[0].n] = name++;
    add_rows(kv, 0, m[0].row, prompt);
    kv_commit(kv, 0, prompt);
    for (size_t n = 0; n < steps; n++) {
        struct test_model was[SEQS];
        memcpy(was, m, sizeof m);
        check(kv_reorder(kv, seq, parent, SEQS, &err) == 0, "no other order");
        copied = n ? copied : kv->stats.copied_rows;
        for (size_t i = 0; i < SEQS; i++) {
            m[i] = was[parent[i]];
            check(rows_are(kv, seq[i], m[i].row, m[i].n), "%s, step %zu: beam %zu differs", spec, n, i);
            m[i].row[m[i].n++] = name;
            add_rows(kv, seq[i], &name, 1);
            kv_commit(kv, seq[i], 1);
            parent[i] = draw(2) ? i : draw(SEQS);
            name++;
        }
    }
    copied = kv->stats.copied_rows - copied;
    m[1].n -= steps / 2;
    kv_truncate(kv, seq[1], m[1].n);
    grow(kv, seq[1], &m[1], &name);
    kv_truncate(kv, seq[2], m[2].n = 0);
    check(kv_fork(kv, seq[2], seq[3], m[2].n = m[3].n - 2, &err) == 0, "no fork");
    m[2] = m[3], m[2].n -= 2;
    grow(kv, seq[2], &m[2], &name);
    for (size_t i = 0; i < SEQS; i++)
        check(rows_are(kv, seq[i], m[i].row, m[i].n), "%s: beam %zu differs at the end", spec, i);
    for (size_t i = 0; i < SEQS; i++)
        kv_truncate(kv, seq[i], 0);
    check(kv->stats.resident_bytes == 0, "%s: memory is left", spec);
    kv_close(kv);
    return copied;
}

/* Index selection: a row of an answer, or of the prompt's last, partial tile, moves at most once, when
 * all beams have it in common. */
static void test_reorder(void)
{
    for (size_t i = 0; kv_policies[i]; i++)
        reorder(kv_policies[i]->name, 5, 20);
    for (int round = 0; round < 20; round++) {
        const size_t prompt = 1 + draw(70), steps = 2 + draw(60);
        const size_t copied = reorder("segment", prompt, steps);
        check(copied <= prompt % TILE_ROWS + steps, "%zu rows copied, of %zu and %zu", copied, prompt,
              steps);
    }
}

static void test_parameters(void)
{
    static const struct {
        const char *text;
        size_t r;
    } good[] = {{"segment", 16}, {"segment:step=5", 5}, {"segment:r=5", 5}, {"segment:T=3", 50}};
    static const char *const bad[] = {"segment:", "segment:step=", "segment:step=0", "segment:5",
                                      "bmc:step=5"};
    struct kv_spec spec;
    struct err err;
    char text[64];
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        struct kv *kv = open_cache(good[i].text, N);
        kv_spec_format(kv, text, sizeof text);
        check(kv->setup.r == good[i].r && cache_spec_parse(&spec, text, &err) == 0 &&
                  spec.r == good[i].r,
              "%s: r %zu, spelled %s", good[i].text, kv->setup.r, text);
        kv_close(kv);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        check(cache_spec_parse(&spec, bad[i], &err) < 0, "\"%s\" was accepted", bad[i]);
}

static size_t pick_five(const struct kv_tuner *tuner, const struct kv_shape *shape, size_t n_seqs,
                        enum kv_T_from *from)
{
    (void)tuner, (void)shape, (void)n_seqs;
    *from = KV_T_PROFILE;
    return 5;
}

/* Only T=tuned uses the tuner; without one it is T as of bmc. */
static void test_tuned(void)
{
    static const struct kv_tuner five = {pick_five};
    static const struct {
        const char *text;
        bool asks;
        size_t r;
        enum kv_T_from from;
    } cases[] = {{"segment:T=tuned", true, N / 5, KV_T_PROFILE},
                 {"segment:T=tuned", false, (N + 3) / 4, KV_T_DEFAULT},
                 {"segment", true, 16, KV_T_POLICY},
                 {"segment:T=3", true, N / 3, KV_T_OPTION}};
    const struct kv_shape shape =
        kv_shape_uniform(LAYERS, (struct kv_sizes){.kv_heads = KV_HEADS, .head_dim = D}, N, DTYPE_F32);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct kv_spec spec;
        struct err err;
        struct kv *kv = NULL;
        check(cache_spec_parse(&spec, cases[i].text, &err) == 0, "%s", err.text);
        check(kv_spec_needs_T(&spec) == spec.tuned, "%s: use of the tuner", cases[i].text);
        spec.tuner = cases[i].asks ? &five : NULL;
        check(kv_open(&kv, &spec, &shape, 1, &err) == 0 && kv->setup.r == cases[i].r &&
                  kv->setup.T_from == cases[i].from,
              "%s: r is %zu", cases[i].text, kv ? kv->setup.r : 0);
        kv_close(kv);
    }
}

static void test_all(void)
{
    for (size_t i = 0; kv_policies[i]; i++)
        test_random(kv_policies[i]->name);
    test_random("segment:step=5");
    test_random("segment:T=3");
    test_memory();
    test_parts();
    test_reorder();
    test_parameters();
    test_tuned();
}

int main(void)
{
    seed = (unsigned)check_seed(1);
    for (int i = 0; i < 2; i++) {
        v_in_k = i;
        test_all();
    }
    return check_result();
}
