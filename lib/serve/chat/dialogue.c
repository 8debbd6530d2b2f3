/* Conversations of several turns, whose prompts keep the ids of earlier answers. */
#include "serve/chat/dialogue.h"

#include "text/tokenizer/detok.h"

void dialogue_clear(struct dialogue *d)
{
    json_decref(d->messages);
    d->messages = NULL;
    d->n_left_out = d->n_ends = 0;
    d->base.len = d->ids.len = 0;
    buf_clear(&d->text);
}

void dialogue_release(struct dialogue *d)
{
    dialogue_clear(d);
    ids_release(&d->base);
    ids_release(&d->ids);
    buf_release(&d->text);
    free(d->end);
    *d = (struct dialogue){.prompts = d->prompts, .flags = d->flags, .tools = d->tools};
}

/* ---- messages ---- */

static const char *role_at(const struct dialogue *d, size_t i)
{
    const char *role = json_string_value(json_object_get(json_array_get(d->messages, i), "role"));
    return role ? role : "";
}

static bool has_role(const struct dialogue *d, size_t i, const char *role)
{
    return strcmp(role_at(d, i), role) == 0;
}

int dialogue_say(struct dialogue *d, const char *role, const char *text, size_t len, struct err *err)
{
    json_t *message = chat_message(role, text, len, err);
    if (!message)
        return -1;
    if (!d->messages)
        d->messages = json_array();
    return json_push(d->messages, message, err);
}

const json_t *dialogue_calls(const struct dialogue *d)
{
    const json_t *last = json_array_get(d->messages, json_array_size(d->messages) - 1);
    const json_t *calls = json_object_get(last, "tool_calls");
    return json_array_size(calls) ? calls : NULL;
}

int dialogue_say_result(struct dialogue *d, const json_t *call, const char *text, size_t len,
                        struct err *err)
{
    json_t *message = json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id",
                                json_object_get(call, "id"), "content", json_text(text, len));
    return json_push(d->messages, message, err);
}

const char *dialogue_system(const struct dialogue *d)
{
    return has_role(d, 0, "system")
               ? json_string_value(json_object_get(json_array_get(d->messages, 0), "content"))
               : NULL;
}

int dialogue_set_system(struct dialogue *d, const char *text, size_t len, struct err *err)
{
    json_t *message = chat_message("system", text, len, err);
    if (!message)
        return -1;
    if (!d->messages)
        d->messages = json_array();
    if (dialogue_system(d))
        json_array_remove(d->messages, 0);
    if (!len) {
        json_decref(message);
        return 0;
    }
    return json_array_insert_new(d->messages, 0, message) == 0 ? 0 : err_no_memory(err, "messages");
}

void dialogue_set_messages(struct dialogue *d, json_t *messages)
{
    json_incref(messages);
    dialogue_clear(d);
    d->messages = messages;
}

int dialogue_check(const json_t *messages, struct err *err)
{
    if (!json_is_array(messages))
        return err_set(err, "\"messages\" is %s, a list is expected", json_type_name(messages));
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i);
        const json_t *content = json_object_get(message, "content");
        const bool calls = json_array_size(json_object_get(message, "tool_calls")) > 0;
        if (!json_is_string(json_object_get(message, "role")) ||
            !(json_is_string(content) || (calls && (!content || json_is_null(content)))))
            return err_set(
                err, "\"messages\": entry %zu is not an object with the strings role and content", i);
    }
    return 0;
}

int dialogue_save(const struct dialogue *d, json_t *object, struct err *err)
{
    AUTO(json_auto) json_t *ids = json_array(), *ends = json_array();
    if (!ids || !ends)
        return err_no_memory(err, "a conversation");
    for (size_t i = 0; i < d->ids.len; i++)
        if (json_push(ids, json_whole(d->ids.id[i]), err) < 0)
            return -1;
    for (size_t i = 0; i < d->n_ends; i++)
        if (json_push(ends, json_whole(d->end[i].text), err) < 0 ||
            json_push(ends, json_whole(d->end[i].ids), err) < 0)
            return -1;
    return json_put(object, "messages", d->messages ? json_incref(d->messages) : json_array(), err) <
                       0 ||
                   json_put(object, "left_out", json_whole(d->n_left_out), err) < 0 ||
                   json_put(object, "text", json_text(buf_text(&d->text), d->text.len), err) < 0 ||
                   json_put(object, "ids", json_incref(ids), err) < 0 ||
                   json_put(object, "ends", json_incref(ends), err) < 0
               ? -1
               : 0;
}

/* Reads a list of whole numbers below `limit`. */
static int read_numbers(const json_t *list, uint64_t limit, struct ids *ids, struct err *err)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *number = json_array_get(list, i);
        if (!json_is_integer(number) || json_integer_value(number) < 0 ||
            (uint64_t)json_integer_value(number) >= limit)
            return err_set(err, "entry %zu of its ids is no whole number below %llu", i,
                           (unsigned long long)limit);
        if (ids_add(ids, (uint32_t)json_integer_value(number), err) < 0)
            return -1;
    }
    return 0;
}

static int restore_ends(struct dialogue *d, const struct ids *pairs, struct err *err)
{
    for (size_t i = 0; i + 1 < pairs->len; i += 2) {
        const struct answer_end end = {pairs->id[i], pairs->id[i + 1]};
        const struct answer_end before = d->n_ends ? d->end[d->n_ends - 1] : (struct answer_end){0};
        if (end.text > d->text.len || end.ids > d->ids.len || end.text < before.text ||
            end.ids < before.ids)
            return err_set(err, "the ends of its answers are not within its text");
        if (mem_grow(&d->end, &d->cap_ends, d->n_ends, sizeof *d->end, err) < 0)
            return -1;
        d->end[d->n_ends++] = end;
    }
    return 0;
}

int dialogue_restore(struct dialogue *d, const json_t *object, struct err *err)
{
    json_t *messages = json_object_get(object, "messages"), *text = json_object_get(object, "text");
    AUTO(ids_release) struct ids pairs = {0};
    int rc = dialogue_check(messages, err);
    if (rc < 0)
        return -1;
    dialogue_set_messages(d, messages);
    d->n_left_out = (size_t)size_min((size_t)json_integer_value(json_object_get(object, "left_out")),
                                     json_array_size(messages));
    if (json_is_string(text))
        rc = buf_add(&d->text, json_string_value(text), json_string_length(text), err);
    if (rc == 0)
        rc =
            read_numbers(json_object_get(object, "ids"), d->prompts->model->config.vocab, &d->ids, err);
    if (rc == 0)
        rc = read_numbers(json_object_get(object, "ends"), UINT32_MAX, &pairs, err);
    if (rc == 0)
        rc = restore_ends(d, &pairs, err);
    if (rc < 0)
        dialogue_clear(d);
    return rc;
}

size_t dialogue_questions(const struct dialogue *d)
{
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(d->messages); i++)
        n += has_role(d, i, "user");
    return n;
}

bool dialogue_drop_answer(struct dialogue *d, bool question)
{
    size_t n = json_array_size(d->messages);
    if (!dialogue_questions(d))
        return false;
    while (!has_role(d, n - 1, "user"))
        json_array_remove(d->messages, --n);
    if (question)
        json_array_remove(d->messages, n - 1);
    d->n_left_out = size_min(d->n_left_out, json_array_size(d->messages));
    return true;
}

bool dialogue_leave_out(struct dialogue *d)
{
    const size_t first = dialogue_system(d) != NULL, n = json_array_size(d->messages);
    size_t next = first + d->n_left_out + 1;
    while (next < n && !has_role(d, next, "user"))
        next++;
    if (next >= n)
        return false;
    d->n_left_out = next - first;
    return true;
}

/* ---- prompts ---- */

/* The messages of the prompt; the caller releases them. */
static json_t *sent_messages(const struct dialogue *d, struct err *err)
{
    const size_t first = dialogue_system(d) != NULL;
    json_t *list = json_array();
    int rc = list ? 0 : err_no_memory(err, "messages");
    for (size_t i = 0; i < json_array_size(d->messages) && rc == 0; i++)
        if (i < first || i >= first + d->n_left_out)
            rc = json_push(list, json_incref(json_array_get(d->messages, i)), err);
    return json_or_null(list, rc, err);
}

static int render(const struct dialogue *d, struct marked_text *out, struct err *err)
{
    AUTO(json_auto) json_t *messages = sent_messages(d, err);
    const struct conversation conversation = {.messages = messages, .tools = d->tools};
    const unsigned flags = d->flags | (d->base.len ? CHAT_CONTINUES : 0);
    return messages ? chat_prompts_render(d->prompts, &conversation, flags, out, err) : -1;
}

/* Appends the ids of the text from offset `from` on. */
static int encode_from(const struct dialogue *d, const struct marked_text *all, size_t from,
                       struct ids *ids, struct err *err)
{
    AUTO(free_auto) struct span *content = mem_alloc(all->n_content + 1, sizeof *content);
    size_t n = 0;
    if (!content)
        return err_no_memory(err, "a prompt");
    for (size_t i = 0; i < all->n_content; i++)
        if (all->content[i].end >= from)
            content[n++] =
                (struct span){size_max(all->content[i].start, from) - from, all->content[i].end - from};
    return chat_prompts_encode(d->prompts, buf_text(&all->text) + from, all->text.len - from, content,
                               n, d->flags, ids, err);
}

/* The last answer up to whose end the rendered text is that of `ids`; {0}: none. Forgets the ends of
 * later answers. */
static struct answer_end find_kept(struct dialogue *d, const struct marked_text *all)
{
    for (; d->n_ends; d->n_ends--) {
        const struct answer_end end = d->end[d->n_ends - 1];
        if (end.text <= all->text.len && memcmp(buf_text(&all->text), d->text.data, end.text) == 0)
            return end;
    }
    return (struct answer_end){0};
}

/* True if ids[from] .. ids[to - 1] are the first ids of `more`. */
static bool continues(const struct ids *ids, size_t from, size_t to, const struct ids *more)
{
    return from <= to && to - from <= more->len &&
           (from == to || memcmp(ids->id + from, more->id, (to - from) * sizeof *more->id) == 0);
}

/* Replaces the ids behind the first `kept.ids` by those of the text. The model may have tokenized its
 * answers in another way than the tokenizer does; if not, the whole text is tokenized at once, so that
 * the ids are what they would be without earlier turns. */
static int replace_ids(struct dialogue *d, const struct marked_text *all, struct answer_end kept,
                       struct err *err)
{
    AUTO(ids_release) struct ids more = {0};
    size_t present = 0;
    int rc = encode_from(d, all, 0, &more, err);
    /* a model may have generated a part of the delimiter that ends the answer of a snapshot */
    if (rc == 0)
        rc = ids_overlap(&d->base, &more, &present, err);
    const size_t begun = d->base.len - present;
    if (rc == 0 && kept.ids && !continues(&d->ids, begun, kept.ids, &more)) {
        more.len = 0;
        rc = encode_from(d, all, kept.text, &more, err);
        d->ids.len = kept.ids;
    } else {
        d->ids.len = 0;
        rc = rc == 0 ? ids_append(&d->ids, &d->base, err) : rc;
        d->ids.len = begun;
    }
    return rc < 0 ? -1 : ids_append(&d->ids, &more, err);
}

int dialogue_prompt(struct dialogue *d, struct err *err)
{
    AUTO(marked_release) struct marked_text all = {0};
    int rc = render(d, &all, err);
    if (rc == 0) {
        const struct answer_end kept = find_kept(d, &all);
        rc = replace_ids(d, &all, kept, err);
        buf_clear(&d->text);
        if (rc == 0)
            rc = buf_add(&d->text, buf_text(&all.text), all.text.len, err);
        if (rc < 0)
            d->n_ends = 0;
    }
    return rc;
}

/* Appends the text of an answer's ids, with or without special tokens. */
static int spell(const struct dialogue *d, const struct gen_result *result, bool keep_special,
                 struct buf *text, struct err *err)
{
    struct detok detok;
    int rc = 0;
    detok_init(&detok, d->prompts->model->tok, keep_special);
    detok.started = true; /* the prompt precedes the answer */
    for (size_t i = 0; i < result->n_ids && rc == 0; i++)
        rc = detok_add(&detok, result->ids[i], text, err);
    return rc < 0 ? rc : detok_finish(&detok, text, err);
}

/* Appends the message of an answer with calls. Its ids stay if the template writes it as the model did. */
static int say_calls(struct dialogue *d, const struct tool_answer *parts, const struct buf *whole,
                     struct err *err)
{
    if (dialogue_say(d, "assistant", buf_text(&parts->content), parts->content.len, err) < 0)
        return -1;
    json_t *message = json_array_get(d->messages, json_array_size(d->messages) - 1);
    if (json_put(message, "tool_calls", json_deep_copy(parts->calls), err) < 0 ||
        buf_add(&d->text, buf_text(whole), whole->len, err) < 0)
        return -1;
    d->end[d->n_ends++] = (struct answer_end){d->text.len, d->ids.len};
    return 0;
}

/* The answer is its text without special tokens, also if those are shown, as templates may refuse them. Its ids
 * stay if they spell it. */
int dialogue_answer(struct dialogue *d, const struct gen_result *result,
                    const struct tool_answer *parts, struct err *err)
{
    AUTO(buf_release) struct buf whole = {0}, plain = {0};
    int rc = spell(d, result, true, &whole, err);
    if (rc == 0)
        rc = spell(d, result, false, &plain, err);
    const size_t cut = result->request->keep_special
                           ? whole.len - size_min(whole.len, result->text_len)
                           : plain.len - size_min(plain.len, result->text_len);
    const size_t len = plain.len - size_min(plain.len, cut);
    if (rc == 0)
        rc = mem_grow(&d->end, &d->cap_ends, d->n_ends, sizeof *d->end, err);
    if (rc == 0 && parts && parts->calls)
        return say_calls(d, parts, &whole, err);
    if (rc == 0)
        rc = dialogue_say(d, "assistant", buf_text(&plain), len, err);
    if (rc == 0)
        rc = buf_add(&d->text, buf_text(&plain), len, err);
    if (rc == 0 && len == whole.len)
        d->end[d->n_ends++] = (struct answer_end){d->text.len, d->ids.len};
    return rc;
}
