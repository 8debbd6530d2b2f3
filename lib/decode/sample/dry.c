/* The sampler DRY. */
#include "decode/sample/dry.h"

#include "base/mem.h"
#include "base/repro_math.h"
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

static bool is_breaker(const struct sampler_options *o, uint32_t id)
{
    return o->dry_breaker && o->dry_breaker[id / 64] >> id % 64 & 1;
}

/* Number of tokens that end at both h[at - 1] and h[n - 1], without breakers, up to `max`. */
static size_t repeated_tokens(const struct sampler_options *o, const uint32_t *h, size_t n, size_t at,
                              size_t max)
{
    size_t len = 0;
    while (len < max && len < at && h[at - 1 - len] == h[n - 1 - len] &&
           !is_breaker(o, h[at - 1 - len]))
        len++;
    return len;
}

/* Sets count[id] to the length of the longest repetition that token id would continue. */
static void count_repeated(const struct sampler_options *o, const uint32_t *h, size_t n,
                           uint32_t *count)
{
    const size_t max = size_min(o->dry_allowed_length, UINT32_MAX / 2) + DRY_LONGEST;
    for (size_t at = 1; at < n; at++) {
        const size_t len = repeated_tokens(o, h, n, at, max);
        if (len > count[h[at]] && !is_breaker(o, h[at]))
            count[h[at]] = (uint32_t)len;
    }
}

static float penalty_of(const struct sampler_options *o, uint32_t len)
{
    if (!len || len < o->dry_allowed_length)
        return 0;
    const double more = len - (double)o->dry_allowed_length;
    return (float)fmin(o->dry_multiplier * repro_pow(o->dry_base, more), -LOGIT_BIAS_NEVER);
}

/* The part of the history that DRY looks at. */
static const uint32_t *recent_history(const struct sampler_options *o, const uint32_t *history,
                                      size_t *n)
{
    const size_t all = *n;
    *n = size_min(all, o->dry_last_n);
    return history + (all - *n);
}

void dry_penalize(const struct sampler_options *o, const uint32_t *history, size_t n, uint32_t *count,
                  float *logits)
{
    const uint32_t *h = recent_history(o, history, &n);
    count_repeated(o, h, n, count);
    for (size_t i = 0; i < n; i++) {
        logits[h[i]] -= penalty_of(o, count[h[i]]);
        count[h[i]] = 0;
    }
}

void dry_penalize_candidates(const struct sampler_options *o, const uint32_t *history, size_t n_history,
                             uint32_t *count, struct candidate *candidate, size_t n)
{
    const uint32_t *h = recent_history(o, history, &n_history);
    count_repeated(o, h, n_history, count);
    for (size_t i = 0; i < n; i++)
        candidate[i].logit -= penalty_of(o, count[candidate[i].id]);
    for (size_t i = 0; i < n_history; i++)
        count[h[i]] = 0;
}

static int order_texts(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool text_begins(const char *text, size_t len, const char *with)
{
    const size_t n = strnlen(with, len + 1);
    return n <= len && memcmp(text, with, n) == 0;
}

/* Sorts texts and drops those that begin with another one, which is found where they are; returns how many are
 * left. The one with which a text may begin is then the last that does not follow it. */
static size_t sort_texts(char **text, size_t n)
{
    size_t kept = 0;
    qsort(text, n, sizeof *text, order_texts);
    for (size_t i = 0; i < n; i++)
        if (!kept || !text_begins(text[i], strlen(text[i]), text[kept - 1]))
            text[kept++] = text[i];
    return kept;
}

/* True if a piece, which ends in a zero byte, has one of the sorted texts in it. */
static bool has_text(const struct buf *piece, char *const *text, size_t n)
{
    for (size_t at = 0; at < piece->len; at++) {
        size_t low = 0, high = n;
        while (low < high) {
            const size_t middle = low + (high - low) / 2;
            if (strcmp(text[middle], piece->data + at) <= 0)
                low = middle + 1;
            else
                high = middle;
        }
        if (low && text_begins(piece->data + at, piece->len - at, text[low - 1]))
            return true;
    }
    return false;
}

static int find_tokens(struct dry_breakers *b, struct err *err)
{
    AUTO(buf_release) struct buf piece = {0};
    int rc = 0;
    if (b->token)
        return 0;
    char **text = mem_alloc(b->n_texts + 1, sizeof *text);
    b->token = mem_zalloc(div_up(b->vocab, 64), sizeof *b->token);
    if (!b->token || !text) {
        free(text);
        return err_no_memory(err, "sequence breakers");
    }
    for (size_t i = 0; i < b->n_texts; i++)
        text[i] = b->text[i];
    const size_t n = sort_texts(text, b->n_texts);
    for (size_t id = 0; id < b->vocab && rc == 0; id++) {
        buf_clear(&piece);
        rc = tokenizer_piece(b->tok, (uint32_t)id, &piece, err);
        if (rc == 0 && has_text(&piece, text, n))
            b->token[id / 64] |= (uint64_t)1 << id % 64;
    }
    free(text);
    return rc;
}

int dry_breakers_find(struct dry_breakers *b, struct sampler_options *options, struct err *err)
{
    if (!dry_is_on(options))
        return 0;
    const int rc = find_tokens(b, err);
    options->dry_breaker = b->token;
    return rc;
}

void dry_breakers_release(struct dry_breakers *b)
{
    free(b->token);
    b->token = NULL;
}
