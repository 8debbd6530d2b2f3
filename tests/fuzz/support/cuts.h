/* Random operations on the KV cache of a small model: sequences are extended, truncated, forked and
 * reordered under any cache policy, and the logits of every step must equal, bit for bit, those of
 * a fresh computation of the same tokens.
 *
 * A program is a byte string: a header (struct cuts) selects the policy and its parameters, then
 * follow instructions of two bytes. The fuzz target runs its input, tests/unit/kv/test_cuts.c
 * random programs. */
#ifndef BMC_FUZZ_CUTS_H
#define BMC_FUZZ_CUTS_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu_memory.h"
#include "base/threads.h"
#include "decode/session.h"
#include "kv/kv_policy.h"
#include "kv/offload/kv_streaming.h"
#include "model/config/config_keys.h"

enum {
    CUTS_HEADER = 8,
    CUTS_SEQS = 3,
    CUTS_N = 96,
    CUTS_MOST = 3 * CUTS_N, /* tokens of a rolling sequence */
    CUTS_STEP = 16,
    CUTS_VOCAB = 16,
    CUTS_STEPS = 64 /* maximum instructions of a program */
};

struct cuts_text {
    uint32_t id[CUTS_MOST + 2 * CUTS_STEP];
    size_t n, fresh; /* tokens, and tokens that the reference has */
};

struct cuts {
    char how[128];             /* the policy and other parameters */
    char problem[256];         /* first mismatch; empty: none */
    size_t forks, cuts, steps; /* executed */
    struct session *tested;
    struct session *fresh; /* reference session: sequences are only appended to and cleared */
    struct cuts_text text[CUTS_SEQS];
    size_t seq[CUTS_SEQS]; /* sequence of the tested cache with these tokens */
};

/* Two layers of 2 KV heads of 32; with a window, every other layer sees 20 positions. */
static inline struct model *cuts_model(bool window)
{
    static struct model *model[2];
    struct err err;
    const struct config_keys keys = {CONFIG_KEY_DEFAULTS,
                                     .mlp = {.activation = ACT_SILU, .kind = MLP_GATED},
                                     .window = window ? 20 : 0, .window_every = window ? 2 : 0};
    const struct config config = {.family = "cuts",
                                  .layers = 2,
                                  .hidden = 8,
                                  .embed = 8,
                                  .heads = 4,
                                  .kv_heads = 2,
                                  .head_dim = 32,
                                  .ffn = 8,
                                  .vocab = CUTS_VOCAB,
                                  .context = 4096,
                                  .norm = NORM_RMS,
                                  .norm_eps = 1e-5,
                                  .norm_affine = true,
                                  .final_norm = true,
                                  .position = POSITION_ROPE,
                                  .keys = &keys,
                                  .tied_head = true};
    if (!model[window] && model_synthesize(&model[window], &config, "cuts", DTYPE_F32, 1, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    return model[window];
}

/* ---- the choice of a policy ---- */

/* The tested policy, and one without moving KV entries for the reference; `more` selects
 * parameters. */
static inline void cuts_policy(const struct kv_policy *policy, size_t more, char text[64],
                               char fresh[64])
{
    static const char *const slack[] = {"0", "0.3", "1", "0.5"};
    const size_t rows = 17 + 5 * (more / 4 % 12);
    snprintf(text, 64, "%s", policy->name);
    snprintf(fresh, 64, "%s", policy->prefetch ? policy->name : "iterative");
    if (policy->rolling) {
        snprintf(text, 64, "%s:S=%zu,slack=%s", policy->name, rows, slack[more % 4]);
        snprintf(fresh, 64, "%s:S=%zu,slack=16", policy->name, rows);
    } else if (policy->prefetch && more % 2) {
        snprintf(text, 64, "%s:ram=%dK", policy->name, more % 4 == 1 ? 400 : 600);
    } else if (policy->growth == &kv_grow_in_blocks && more % 2) {
        snprintf(text, 64, "%s:32", policy->name);
    } else if (policy->growth->in_steps && more % 4) {
        snprintf(text, 64, "%s:r=%zu", policy->name, 1 + more % 40);
    }
}

static inline void cuts_open_session(struct session **session, const struct model *model,
                                     const char *policy, const struct kv_streaming *sparse,
                                     const uint8_t *choice)
{
    static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_F32};
    struct err err;
    struct session_options o = {.kv_types = cache_types_alike(types[choice[2] % 4]),
                                .cpu.precision = PRECISION_F32,
                                .context = CUTS_N,
                                .batch = CUTS_SEQS,
                                .chunk = 2 * CUTS_STEP,
                                .threads = 1,
                                .threads_prefill = 1};
    threads_set(1);
    kernels_setup();
    if (!(o.cpu.attn = attn_find("fused", &err)) || !(o.cpu.kernels = kernels_select(NULL, &err)) ||
        kv_spec_parse(&o.kv, policy, &err) < 0)
        goto failed;
    o.kv.offload.streaming = sparse;
    o.kv.alloc = (enum vm_alloc)(choice[3] % (VM_THP + 1));
    o.kv.lockstep = o.kv.policy->lockstep && choice[4] % 4 == 0;
    o.kv.attend_valid = choice[4] / 4 % 4 == 0;
    if (session_open(session, model, &o, &err) == 0)
        return;
failed:
    fprintf(stderr, "%s: %s\n", policy, err.text);
    abort();
}

static inline void cuts_open(struct cuts *c, const uint8_t *choice)
{
    /* One head of each layer is a retrieval head, or none. */
    static const char *const lists[] = {"sink 4\nrecent 30\n0 1\n1 0\n", "sink 0\nrecent 17\n0 0\n"};
    size_t n = 0;
    while (kv_policies[n])
        n++;
    const struct kv_policy *policy = kv_policies[choice[0] % n];
    const struct model *model = cuts_model(choice[5] % 2);
    char text[64], fresh[64];
    struct kv_streaming sparse = {0};
    const bool is_sparse = policy->prefetch && choice[6] % 3 > 0;
    struct err err;
    memset(c, 0, sizeof *c);
    if (is_sparse) {
        const char *list = lists[choice[6] % 3 - 1];
        if (kv_streaming_parse(&sparse, list, strlen(list), "list", 2, 2, &err) < 0)
            abort();
    }
    cuts_policy(policy, choice[1], text, fresh);
    cuts_open_session(&c->tested, model, text, is_sparse ? &sparse : NULL, choice);
    cuts_open_session(&c->fresh, model, fresh, is_sparse ? &sparse : NULL, choice);
    kv_streaming_release(&sparse);
    snprintf(c->how, sizeof c->how, "%s%s%s%s%s", text, is_sparse ? ", sparse heads" : "",
             choice[5] % 2 ? ", layers with windows" : "",
             session_options(c->tested)->kv.lockstep ? ", lockstep" : "",
             session_options(c->tested)->kv.attend_valid ? ", valid rows" : "");
    for (size_t i = 0; i < CUTS_SEQS; i++)
        c->seq[i] = i;
}

static inline void cuts_close(struct cuts *c)
{
    session_close(c->tested);
    session_close(c->fresh);
}

/* ---- instructions ---- */

__attribute__((format(printf, 2, 3))) static inline void cuts_found(struct cuts *c, const char *format,
                                                                    ...)
{
    va_list args;
    va_start(args, format);
    if (!*c->problem)
        vsnprintf(c->problem, sizeof c->problem, format, args);
    va_end(args);
}

/* Padding before the first KV entry must be readable zeros. */
static inline void cuts_check_padding(struct cuts *c, size_t seq)
{
    struct kv *kv = session_kv(c->tested);
    const struct kv_setup *setup = kv_setup(kv);
    const struct kv_sizes *sizes = &setup->shape.sizes[0];
    const size_t heads = sizes->kv_heads, bytes = kv_sizes_row_bytes(sizes, KV_K);
    struct err err;
    for (size_t l = 0; l < setup->shape.layers && !kv_offload(kv).heads_at_once; l++) {
        struct kv_view view;
        if (kv_view(kv, seq, l, 0, heads, &view, &err) < 0) {
            cuts_found(c, "%s", err.text);
            return;
        }
        for (size_t i = 0; i < view.padded * heads * bytes && view.n_spans; i++) {
            const struct kv_span *span = view.span;
            const size_t back = view.padded * bytes, at = i % back;
            const size_t from = view.offset[KV_K] + i / back * span->head_stride[KV_K];
            if (((const char *)cpu_at(span->k) + from - back)[at] ||
                ((const char *)cpu_at(span->v) + from - back)[at]) {
                cuts_found(c, "padding of layer %zu is not zero", l);
                break;
            }
        }
    }
}

/* Reference logits of the last token. */
static inline void cuts_fresh(struct cuts *c, size_t i, float *logits)
{
    struct cuts_text *t = &c->text[i];
    struct err err;
    size_t row = 0;
    if (t->fresh >= t->n || !t->fresh) {
        session_clear(c->fresh, i);
        t->fresh = 0;
    }
    for (size_t n; t->fresh < t->n; t->fresh += n) {
        n = size_min(t->n - t->fresh, CUTS_STEP);
        row = batch_add(c->fresh, i, t->id + t->fresh, n) + n - 1;
        if (session_run(c->fresh, 1, &err) < 0)
            cuts_found(c, "the reference: %s", err.text);
    }
    if (session_logits(c->fresh, &row, 1, logits, &err) < 0)
        cuts_found(c, "the reference: %s", err.text);
}

/* Maximum tokens of sequence i in one step. */
static inline size_t cuts_space(const struct cuts *c, size_t i)
{
    const struct kv *kv = session_kv(c->tested);
    const size_t most = kv_spec_rolling(&session_options(c->tested)->kv) ? CUTS_MOST - c->text[i].n
                                                                         : kv_left(kv, c->seq[i]);
    return size_min(batch_space(c->tested), most);
}

static inline void cuts_run_step(struct cuts *c, size_t i, size_t row, const size_t *stay, size_t n)
{
    float got[CUTS_VOCAB], want[CUTS_VOCAB];
    struct err err;
    if (session_forward(c->tested, 1, &err) < 0 || session_logits(c->tested, &row, 1, got, &err) < 0) {
        cuts_found(c, "%s", err.text);
        return;
    }
    cuts_check_padding(c, c->seq[i]);
    session_accept(c->tested, c->seq[i], stay, n);
    c->text[i].n += n;
    c->steps++;
    cuts_fresh(c, i, want);
    if (memcmp(got, want, sizeof got))
        cuts_found(c, "other logits at %zu tokens", c->text[i].n);
}

/* Appends random tokens, of which some are rejected. */
static inline void cuts_feed(struct cuts *c, size_t i, size_t more)
{
    struct cuts_text *t = &c->text[i];
    const size_t space = cuts_space(c, i), n = size_min(1 + more % CUTS_STEP, space);
    const size_t rows = size_min(n + more / CUTS_STEP % 4, space);
    size_t stay[2 * CUTS_STEP];
    if (!n)
        return;
    for (size_t k = 0; k < rows; k++) {
        t->id[t->n + k] = (uint32_t)((more * 7 + k * 5 + t->n * 3) % CUTS_VOCAB);
        stay[k] = k;
    }
    const size_t first = batch_add(c->tested, c->seq[i], t->id + t->n, rows);
    cuts_run_step(c, i, first + n - 1, stay, n);
}

/* A draft tree: each token of a chain has a sibling before it, and only the chain is accepted. */
static inline void cuts_feed_tree(struct cuts *c, size_t i, size_t more)
{
    struct cuts_text *t = &c->text[i];
    const size_t n = size_min(1 + more % (CUTS_STEP / 2), cuts_space(c, i) / 2);
    uint32_t id[CUTS_STEP], ancestors[CUTS_STEP * CUTS_STEP];
    size_t depth[CUTS_STEP], ancestors_at[CUTS_STEP + 1] = {0}, stay[CUTS_STEP];
    if (!n)
        return;
    for (size_t k = 0; k < n; k++)
        for (size_t sibling = 0; sibling < 2; sibling++) {
            const size_t node = 2 * k + sibling, at = ancestors_at[node];
            id[node] = (uint32_t)((more * 3 + node * 5 + t->n) % CUTS_VOCAB);
            depth[node] = k;
            for (size_t up = 0; up < k; up++)
                ancestors[at + up] = (uint32_t)(2 * up + 1);
            ancestors[at + k] = (uint32_t)node;
            ancestors_at[node + 1] = at + k + 1;
            stay[k] = node;
            t->id[t->n + k] = id[node];
        }
    const size_t first =
        batch_add_tree(c->tested, c->seq[i], id, depth, 2 * n, ancestors, ancestors_at);
    cuts_run_step(c, i, first + 2 * n - 1, stay, n);
}

/* Truncates: any number of entries of an untrimmed sequence may be kept, else none. */
static inline void cuts_cut(struct cuts *c, size_t i, size_t more)
{
    struct cuts_text *t = &c->text[i];
    const size_t n = kv_is_untrimmed(session_kv(c->tested), c->seq[i]) ? more * (t->n + 1) / 256 : 0;
    session_truncate(c->tested, c->seq[i], n);
    c->cuts += n && n < t->n;
    t->n = n;
    t->fresh = 0;
}

static inline void cuts_fork(struct cuts *c, size_t i, size_t more)
{
    const size_t to = (i + 1 + more % (CUTS_SEQS - 1)) % CUTS_SEQS, all = c->text[i].n;
    const size_t n =
        kv_is_untrimmed(session_kv(c->tested), c->seq[i]) ? (more / 2 + 1) * all / 128 : all;
    struct err err;
    session_clear(c->tested, c->seq[to]);
    c->text[to] = c->text[i];
    c->text[to].n = n;
    c->text[to].fresh = 0;
    c->forks += n > 0;
    if (n && session_fork(c->tested, c->seq[to], c->seq[i], n, &err) < 0)
        cuts_found(c, "%s", err.text);
}

static inline void cuts_reorder(struct cuts *c, size_t more)
{
    const size_t parent[CUTS_SEQS] = {more % 3, more / 3 % 3, more / 9 % 3};
    struct cuts_text was[CUTS_SEQS];
    struct err err;
    memcpy(was, c->text, sizeof was);
    for (size_t i = 0; i < CUTS_SEQS; i++) {
        c->text[i] = was[parent[i]];
        c->text[i].fresh = 0;
    }
    if (session_reorder(c->tested, c->seq, parent, CUTS_SEQS, &err) < 0)
        cuts_found(c, "%s", err.text);
}

/* False on a mismatch, described by c->how and c->problem. */
static inline bool cuts_run(struct cuts *c, const uint8_t *data, size_t size)
{
    uint8_t header[CUTS_HEADER] = {0};
    memcpy(header, data, size_min(size, sizeof header));
    cuts_open(c, header);
    for (size_t at = CUTS_HEADER, n = 0; at + 2 <= size && n < CUTS_STEPS && !*c->problem;
         at += 2, n++) {
        const size_t i = data[at] / 16 % CUTS_SEQS, more = data[at + 1];
        switch (data[at] % 16) {
        case 0: cuts_fork(c, i, more); break;
        case 1: cuts_reorder(c, more); break;
        case 2:
        case 3:
        case 4: cuts_cut(c, i, more); break;
        case 5:
        case 6: cuts_feed_tree(c, i, more); break;
        default: cuts_feed(c, i, more);
        }
    }
    cuts_close(c);
    return !*c->problem;
}

#endif
