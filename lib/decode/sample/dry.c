/* The sampler DRY. */
#include "decode/sample/dry.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "decode/sample/truncate.h"

char *const dry_default_breakers[4] = {"\n", ":", "\"", "*"};

bool dry_is_on(const struct sampler_options *o)
{
    const struct sampler_order order = sampler_order_of(o);
    bool listed = false;
    for (size_t i = 0; i < order.n; i++)
        listed = listed || order.step[i] == SAMPLER_DRY;
    return listed && o->dry_multiplier > 0 && o->dry_last_n;
}

bool dry_leads(const struct sampler_options *o)
{
    return o->temp <= 0 || sampler_order_of(o).step[0] == SAMPLER_DRY;
}

static bool breaks(const struct sampler_options *o, uint32_t id)
{
    return o->dry_breaker && o->dry_breaker[id / 64] >> id % 64 & 1;
}

/* Number of tokens that end at both h[at - 1] and h[n - 1], without breakers, up to `most`. */
static size_t repeated(const struct sampler_options *o, const uint32_t *h, size_t n, size_t at,
                       size_t most)
{
    size_t len = 0;
    while (len < most && len < at && h[at - 1 - len] == h[n - 1 - len] && !breaks(o, h[at - 1 - len]))
        len++;
    return len;
}

/* Sets count[id] to the length of the longest repetition that token id would continue. */
static void count_repeated(const struct sampler_options *o, const uint32_t *h, size_t n,
                           uint32_t *count)
{
    const size_t most = size_min(o->dry_allowed_length, UINT32_MAX / 2) + DRY_LONGEST;
    for (size_t at = 1; at < n; at++) {
        const size_t len = repeated(o, h, n, at, most);
        if (len > count[h[at]] && !breaks(o, h[at]))
            count[h[at]] = (uint32_t)len;
    }
}

static float penalty(const struct sampler_options *o, uint32_t len)
{
    if (!len || len < o->dry_allowed_length)
        return 0;
    const double more = len - (double)o->dry_allowed_length;
    return (float)fmin(o->dry_multiplier * pow(o->dry_base, more), -LOGIT_BIAS_NEVER);
}

/* The part of the history that DRY looks at. */
static const uint32_t *recent(const struct sampler_options *o, const uint32_t *history, size_t *n)
{
    const size_t all = *n;
    *n = size_min(all, o->dry_last_n);
    return history + (all - *n);
}

void dry_penalize(const struct sampler_options *o, const uint32_t *history, size_t n, uint32_t *count,
                  float *logits)
{
    const uint32_t *h = recent(o, history, &n);
    count_repeated(o, h, n, count);
    for (size_t i = 0; i < n; i++) {
        logits[h[i]] -= penalty(o, count[h[i]]);
        count[h[i]] = 0;
    }
}

void dry_penalize_candidates(const struct sampler_options *o, const uint32_t *history, size_t n_history,
                             uint32_t *count, struct candidate *candidate, size_t n)
{
    const uint32_t *h = recent(o, history, &n_history);
    count_repeated(o, h, n_history, count);
    for (size_t i = 0; i < n; i++)
        candidate[i].logit -= penalty(o, count[candidate[i].id]);
    for (size_t i = 0; i < n_history; i++)
        count[h[i]] = 0;
}

static int find_in_piece(struct dry_breakers *b, uint32_t id, struct buf *piece, struct err *err)
{
    buf_clear(piece);
    if (tokenizer_piece(b->tok, id, piece, err) < 0)
        return -1;
    for (size_t i = 0; i < b->n_texts; i++)
        if (piece->len && memmem(piece->data, piece->len, b->text[i], strlen(b->text[i])))
            b->token[id / 64] |= (uint64_t)1 << id % 64;
    return 0;
}

int dry_breakers_find(struct dry_breakers *b, struct err *err)
{
    struct buf piece = {0};
    int rc = 0;
    if (b->token)
        return 0;
    b->token = mem_zalloc(div_up(b->vocab, 64), sizeof *b->token);
    if (!b->token)
        return err_no_memory(err, "sequence breakers");
    for (size_t id = 0; id < b->vocab && rc == 0; id++)
        rc = find_in_piece(b, (uint32_t)id, &piece, err);
    buf_release(&piece);
    return rc;
}

void dry_breakers_release(struct dry_breakers *b)
{
    free(b->token);
    b->token = NULL;
}
