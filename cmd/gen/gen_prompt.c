/* Reads the prompt of plain generation. */
#include "gen/gen.h"
#include "text/tokenizer/detok.h"

/* Appends the text of the prompt's ids. Bytes of an incomplete UTF-8 character at their end are
 * held back for the generated ids; if more prompt text follows, they are flushed. */
static int add_text(const struct gen *gen, const struct ids *prompt, bool text_follows,
                    struct buf *text, struct err *err)
{
    struct detok detok;
    detok_init(&detok, gen->model->tok, false);
    for (size_t i = 0; i < prompt->len; i++)
        if (detok_add(&detok, prompt->id[i], text, err) < 0)
            return -1;
    return text_follows ? detok_finish(&detok, text, err) : 0;
}

/* Sets up the request to resume the snapshot's only sequence. */
static int resume(const struct gen *gen, struct gen_request *request, struct err *err)
{
    const struct snapshot *snapshot = gen->snapshot;
    if (snapshot->file.n_seqs > 1 && gen->options->beams)
        return err_set(err,
                       "%s: has %zu sequences, but a search of %zu beams begins with one: --jsonl "
                       "resumes each by its id",
                       snapshot->path, snapshot->file.n_seqs, gen->options->beams);
    if (snapshot->file.n_seqs > 1)
        return err_set(err, "%s: has %zu sequences; --jsonl resumes them by their ids", snapshot->path,
                       snapshot->file.n_seqs);
    return resume_sequence(snapshot, 0, gen->seed, request, err);
}

static int add_chat(const struct gen *gen, const struct buf *message, bool resumes, struct ids *prompt,
                    struct buf *text, struct err *err)
{
    json_t *messages = chat_user_message(buf_text(message), message->len, err);
    const struct conversation conversation = {.messages = messages};
    const unsigned flags =
        (resumes ? CHAT_CONTINUES : 0) | (gen->options->parse_special ? CHAT_PARSES_SPECIAL : 0);
    const int rc =
        messages ? chat_prompts_add(&gen->chat, &conversation, flags, prompt, text, err) : -1;
    json_decref(messages);
    return rc;
}

int gen_read_prompt(const struct gen *gen, struct ids *prompt, struct buf *text,
                    struct gen_request *request, struct err *err)
{
    const struct gen_options *o = gen->options;
    const bool resumes = o->load_kv && gen->snapshot;
    const bool as_text = !o->prompt_ids && (!resumes || o->prompt || o->file);
    struct buf more = {0};
    int rc = -1;
    *request = serve_request(&gen->serve, prompt);
    if (as_text)
        gen_hint_terminal(gen, "the prompt");
    if ((resumes && resume(gen, request, err) < 0) ||
        (as_text && gen_read_text(o, false, &more, err) < 0))
        goto out;
    if (o->prompt_ids && ids_parse(prompt, o->prompt_ids, err) < 0) {
        err_prefix(err, "--prompt-ids");
        goto out;
    }
    if (add_text(gen, prompt, more.len > 0, text, err) < 0 ||
        (more.len && !o->chat && buf_add(text, more.data, more.len, err) < 0))
        goto out;
    /* Text that continues a sequence is tokenized separately, without BOS. */
    if (as_text && (o->chat ? add_chat(gen, &more, resumes, prompt, text, err)
                            : serve_encode(gen->model, buf_text(&more), more.len, !resumes,
                                           !o->no_parse_special, prompt, err)) < 0)
        err_prefix(err, "prompt");
    else
        rc = 0;
out:
    buf_release(&more);
    return rc;
}
