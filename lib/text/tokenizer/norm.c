/* Runs normalizers. Each kind of step is a function in the table `normalizers`. To add
 * one: a kind in tok_tables.h, its rule in tok_tables.c, a function here, and its name and parse
 * function in import_normalizers.c. */
#include "text/tokenizer/norm.h"

#include "text/tokenizer/norm_chars.h"
#include "text/tokenizer/tok_steps.h"
#include "text/utf8.h"

void norm_release(struct normalizer *norm)
{
    matcher_release(&norm->matcher);
    buf_release(&norm->text[0]);
    buf_release(&norm->text[1]);
    *norm = (struct normalizer){0};
}

static int normalize_prepend(const struct norm_work *work, struct slice text, struct buf *out,
                             struct err *err)
{
    struct slice prefix = step_a(work->tok, work->step);
    if (text.size > 0 && buf_add(out, prefix.data, prefix.size, err) < 0)
        return -1;
    return buf_add(out, text.data, text.size, err);
}

static int normalize_replace(const struct norm_work *work, struct slice text, struct buf *out,
                             struct err *err)
{
    return slice_replace(text, step_a(work->tok, work->step), step_b(work->tok, work->step),
                         work->limit, out, err);
}

static int normalize_replace_pattern(const struct norm_work *work, struct slice text, struct buf *out,
                                     struct err *err)
{
    struct slice by = step_b(work->tok, work->step);
    struct search search;
    size_t done = 0, start, end;
    int found;
    if (text.size == 0)
        return 0;
    if (step_search(work->tok, work->step, work->matcher, text, &search, err) < 0)
        return -1;
    while ((found = search_next(&search, &start, &end, err)) > 0) {
        if (buf_add(out, text.data + done, start - done, err) < 0 ||
            buf_add(out, by.data, by.size, err) < 0 ||
            step_check_growth(work->limit, out->len, err) < 0)
            return -1;
        done = end;
    }
    return found < 0 ? -1 : buf_add(out, text.data + done, text.size - done, err);
}

static int normalize_strip(const struct norm_work *work, struct slice text, struct buf *out,
                           struct err *err)
{
    size_t start = 0, end = text.size;
    uint32_t code;
    while (work->step->option & STRIP_LEFT && start < end) {
        size_t step = utf8_decode(text.data + start, &code);
        if (!utf8_is_space(code))
            break;
        start += step;
    }
    while (work->step->option & STRIP_RIGHT && end > start) {
        size_t before = utf8_before(text.data, end);
        utf8_decode(text.data + before, &code);
        if (!utf8_is_space(code))
            break;
        end = before;
    }
    return buf_add(out, text.data + start, end - start, err);
}

static normalize_fn *const normalizers[STEP_KINDS] = {
    [NORMALIZE_UNICODE] = normalize_unicode,
    [NORMALIZE_PREPEND] = normalize_prepend,
    [NORMALIZE_REPLACE] = normalize_replace,
    [NORMALIZE_REPLACE_PATTERN] = normalize_replace_pattern,
    [NORMALIZE_CHARSMAP] = normalize_charsmap,
    [NORMALIZE_SENTENCEPIECE] = normalize_sentencepiece,
    [NORMALIZE_STRIP] = normalize_strip,
    [NORMALIZE_STRIP_ACCENTS] = normalize_strip_accents,
    [NORMALIZE_LOWERCASE] = normalize_lowercase,
};

int norm_run(struct normalizer *norm, const struct tokenizer *tok, const char *text, size_t len,
             const char **normal, size_t *normal_len, struct err *err)
{
    struct norm_work work = {.tok = tok, .matcher = &norm->matcher, .limit = step_limit(len)};
    struct slice now = {text, len};
    for (size_t i = 0; i < tok->step_count[LIST_NORMALIZER]; i++) {
        struct buf *out = &norm->text[i % 2];
        work.step = &tok->steps[LIST_NORMALIZER][i];
        buf_clear(out);
        if (buf_reserve(out, now.size, err) < 0 ||
            normalizers[work.step->kind](&work, now, out, err) < 0 ||
            step_check_growth(work.limit, out->len, err) < 0)
            return -1;
        now = (struct slice){out->data, out->len};
    }
    *normal = now.data;
    *normal_len = now.size;
    return 0;
}
