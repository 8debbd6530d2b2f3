/* Chats: what is said becomes a prompt of the model's own format, and its tokens end an answer. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "gen.h"
#include "model/chats.h"

/* What the format calls {bos} and {eos} are the model's own. */
static int name_tokens(struct gen *gen, struct err *err)
{
    struct buf bos = {0}, eos = {0};
    int rc = chat_usual_tokens(gen->model->tok, &gen->model->config, &bos, &eos, err);
    if (rc == 0)
        rc = chat_set_tokens(&gen->chat.format, buf_text(&bos), buf_text(&eos), err);
    buf_release(&bos);
    buf_release(&eos);
    return rc;
}

/* The model's format, or the one that was named. */
static int open_format(struct gen *gen, struct err *err)
{
    const char *name = gen->options->chat_format;
    char models_dir[8192];
    if (!name)
        return model_chat(gen->model, &gen->chat.format, err);
    if (cli_models_dir(models_dir, sizeof models_dir, err) < 0 ||
        chat_open(&gen->chat.format, models_dir, name, err) < 0)
        return -1;
    return name_tokens(gen, err);
}

/* An end that is one token of the model ends an answer like its own end of text; another one is a text to stop at. */
static int find_ends(struct gen *gen, struct err *err)
{
    struct gen_chat *chat = &gen->chat;
    const struct opt_list *stop = &gen->options->stop;
    chat->stop = calloc(stop->n + CHAT_ENDS, sizeof *chat->stop);
    if (!chat->stop)
        return err_set(err, "out of memory for stop strings");
    for (size_t i = 0; i < stop->n; i++)
        chat->stop[chat->n_stops++] = stop->text[i];
    for (size_t i = 0; i < chat->format.n_ends; i++) {
        char *end = chat->format.end[i];
        const int64_t id = tokenizer_find(gen->model->tok, end, strlen(end));
        if (id >= 0)
            chat->end[chat->n_ends++] = (uint32_t)id;
        else if (*end)
            chat->stop[chat->n_stops++] = end;
    }
    return 0;
}

static bool has_letter(const char *text)
{
    while (*text && !isalpha((unsigned char)*text))
        text++;
    return *text != 0;
}

/* Tokens that the vocabulary does not call special may be marks all the same. Blanks and ends of lines are none. */
static int find_marks(struct gen *gen, struct err *err)
{
    struct gen_chat *chat = &gen->chat;
    const struct tokenizer *tok = gen->model->tok;
    struct buf piece = {0};
    struct ids found = {0};
    int rc = 0;
    for (size_t i = 0; i < CHAT_PARTS && rc == 0; i++)
        if (i != CHAT_DEFAULT_SYSTEM)
            rc = tokenizer_marks(tok, chat->format.part[i], strlen(chat->format.part[i]), &found, err);
    for (size_t i = 0; i < chat->format.n_ends && rc == 0; i++)
        rc = tokenizer_marks(tok, chat->format.end[i], strlen(chat->format.end[i]), &found, err);
    for (size_t i = 0; i < found.len && rc == 0; i++) {
        buf_clear(&piece);
        rc = tokenizer_piece(tok, found.id[i], &piece, err);
        if (rc == 0 && piece.len && has_letter(piece.data))
            rc = ids_add(&chat->marks, found.id[i], err);
    }
    ids_release(&found);
    buf_release(&piece);
    return rc;
}

int gen_open_chat(struct gen *gen, struct err *err)
{
    if (gen->chat.format.name)
        return 0;
    return open_format(gen, err) < 0 || find_marks(gen, err) < 0 ? -1 : find_ends(gen, err);
}

void gen_close_chat(struct gen *gen)
{
    chat_release(&gen->chat.format);
    free(gen->chat.stop);
    ids_release(&gen->chat.marks);
    gen->chat = (struct gen_chat){0};
}

void gen_chat_request(const struct gen *gen, struct gen_request *request)
{
    request->end = gen->chat.end;
    request->n_ends = gen->chat.n_ends;
    request->stop = gen->chat.stop;
    request->n_stops = gen->chat.n_stops;
}

int gen_chat_prompt(const struct gen *gen, const struct chat_turn *turn, size_t n, unsigned how,
                    struct ids *ids, struct buf *text, struct err *err)
{
    const struct chat *format = &gen->chat.format;
    const bool goes_on = how & CHAT_GOES_ON;
    struct chat_text out = {0};
    struct ids more = {0};
    size_t said =
        0; /* an answer that was cut, or that ended in the middle of what follows one, is completed */
    int rc = -1;
    if ((goes_on && chat_render_end(format, &out, err) < 0) ||
        chat_render(format, gen->options->system, turn, n, !goes_on, &out, err) < 0)
        goto out;
    if (tokenizer_encode_around(gen->model->tok, buf_text(&out.text), out.text.len, out.words,
                                how & CHAT_PARSES_SPECIAL ? 0 : out.n_words, &gen->chat.marks, &more,
                                err) < 0 ||
        (text && buf_add(text, out.text.data, out.text.len, err) < 0) ||
        (goes_on && ids_overlap(ids, &more, &said, err) < 0))
        goto out;
    rc = 0;
    for (size_t i = said; i < more.len && rc == 0; i++)
        rc = ids_add(ids, more.id[i], err);
out:
    chat_text_release(&out);
    ids_release(&more);
    return rc;
}

int gen_chat_user(const struct gen *gen, const char *words, size_t len, unsigned how, struct ids *ids,
                  struct buf *text, struct err *err)
{
    const struct chat_turn turn = {CHAT_OF_USER, words, len};
    return gen_chat_prompt(gen, &turn, 1, how, ids, text, err);
}
