/* Renders conversations with a model's chat template. */
#include "serve/chat_prompts.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "model/chat_registry.h"

/* Replaces the placeholders {bos} and {eos} in the template by the model's BOS and EOS tokens. */
static int set_tokens(struct chat_prompts *p, struct err *err)
{
    struct buf bos = {0}, eos = {0};
    int rc = chat_default_tokens(p->model->tok, &p->model->config, &bos, &eos, err);
    if (rc == 0)
        rc = chat_set_tokens(&p->format, buf_text(&bos), buf_text(&eos), err);
    buf_release(&bos);
    buf_release(&eos);
    return rc;
}

static int open_format(struct chat_prompts *p, struct err *err)
{
    const struct chat_options *o = &p->options;
    if (!o->format)
        return model_chat(p->model, &p->format, err);
    return chat_open(&p->format, o->models_dir, o->format, err) < 0 ? -1 : set_tokens(p, err);
}

/* Divides the template's end-of-turn strings: single tokens act as EOS, others as stop strings. */
static int find_ends(struct chat_prompts *p, struct err *err)
{
    const struct chat_options *o = &p->options;
    p->stop = calloc(o->n_stops + CHAT_ENDS, sizeof *p->stop);
    if (!p->stop)
        return err_set(err, "out of memory for stop strings");
    for (size_t i = 0; i < o->n_stops; i++)
        p->stop[p->n_stops++] = o->stop[i];
    for (size_t i = 0; i < p->format.n_ends; i++) {
        char *end = p->format.end[i];
        const int64_t id = tokenizer_find(p->model->tok, end, strlen(end));
        if (id >= 0)
            p->end[p->n_ends++] = (uint32_t)id;
        else if (*end)
            p->stop[p->n_stops++] = end;
    }
    return 0;
}

static bool has_letter(const char *text)
{
    while (*text && !isalpha((unsigned char)*text))
        text++;
    return *text != 0;
}

/* Collects the template's tokens as delimiters, which are not matched inside messages, even if the
 * vocabulary does not mark them as special. Excludes white space and punctuation. */
static int find_delimiters(struct chat_prompts *p, struct err *err)
{
    const struct tokenizer *tok = p->model->tok;
    struct buf piece = {0};
    struct ids found = {0};
    int rc = 0;
    for (size_t i = 0; i < CHAT_PARTS && rc == 0; i++)
        if (i != CHAT_DEFAULT_SYSTEM)
            rc = tokenizer_find_added(tok, p->format.part[i], strlen(p->format.part[i]), &found, err);
    for (size_t i = 0; i < p->format.n_ends && rc == 0; i++)
        rc = tokenizer_find_added(tok, p->format.end[i], strlen(p->format.end[i]), &found, err);
    for (size_t i = 0; i < found.len && rc == 0; i++) {
        buf_clear(&piece);
        rc = tokenizer_piece(tok, found.id[i], &piece, err);
        if (rc == 0 && piece.len && has_letter(piece.data))
            rc = ids_add(&p->delimiters, found.id[i], err);
    }
    ids_release(&found);
    buf_release(&piece);
    return rc;
}

int chat_prompts_open(struct chat_prompts *p, struct err *err)
{
    if (p->is_open)
        return 0;
    if (open_format(p, err) < 0 || find_delimiters(p, err) < 0 || find_ends(p, err) < 0) {
        chat_prompts_close(p);
        return -1;
    }
    p->is_open = true;
    return 0;
}

void chat_prompts_close(struct chat_prompts *p)
{
    chat_release(&p->format);
    free(p->stop);
    ids_release(&p->delimiters);
    *p = (struct chat_prompts){.model = p->model, .options = p->options};
}

void chat_prompts_set_ends(const struct chat_prompts *p, struct gen_request *request)
{
    request->end = p->end;
    request->n_ends = p->n_ends;
    request->stop = p->stop;
    request->n_stops = p->n_stops;
}

int chat_prompts_add(const struct chat_prompts *p, const struct chat_turn *turn, size_t n,
                     unsigned flags, struct ids *ids, struct buf *text, struct err *err)
{
    const bool continues = flags & CHAT_CONTINUES;
    struct chat_text out = {0};
    struct ids more = {0};
    size_t present = 0; /* number of leading tokens of `more` that `ids` already ends with */
    int rc = -1;
    if ((continues && chat_render_end(&p->format, &out, err) < 0) ||
        chat_render(&p->format, p->options.system, turn, n, !continues, &out, err) < 0)
        goto out;
    /* When continuing, appends the rest of the delimiter that ends the previous answer: the model
     * may have generated a part of it. */
    if (tokenizer_encode_chat(p->model->tok, buf_text(&out.text), out.text.len, out.content,
                              flags & CHAT_PARSES_SPECIAL ? 0 : out.n_content, &p->delimiters, &more,
                              err) < 0 ||
        (text && buf_add(text, out.text.data, out.text.len, err) < 0) ||
        (continues && ids_overlap(ids, &more, &present, err) < 0))
        goto out;
    rc = 0;
    for (size_t i = present; i < more.len && rc == 0; i++)
        rc = ids_add(ids, more.id[i], err);
out:
    chat_text_release(&out);
    ids_release(&more);
    return rc;
}
