/* Answers of conversations with tools, as they are printed. */
#include "gen/gen.h"

#include <ctype.h>

void gen_answer_release(struct gen_answer *a)
{
    tool_answer_release(&a->parts);
    answer_plan_release(&a->plan);
}

int gen_answer_begin(struct gen *gen, struct gen_answer *a, struct gen_request *request,
                     const struct buf *prompt, struct err *err)
{
    struct serve *serve = &gen->serve;
    struct answer_options options = serve->options.answer;
    const bool divides = gen->tools || options.reasoning != REASONING_AS_IS;
    const struct tool_format *format = divides ? chat_prompts_tools(&serve->chat) : NULL;
    gen_answer_release(a);
    *a = (struct gen_answer){.divides = format != NULL, .line_start = true};
    options.tools = gen->tools;
    if (answer_plan_make(&a->plan, &options, &serve->chat, serve->constraints, request->ids, request,
                         err) < 0)
        return -1;
    if (!format)
        return 0;
    request->keep_special = true; /* they may be what calls begin with */
    const int rc = tool_answer_begin(&a->parts, format, gen->tools, serve_call_seed(request, 0),
                                     (struct slice){buf_text(prompt), prompt->len}, err);
    answer_plan_report(&a->plan, &a->parts);
    return rc;
}

static int add_text(struct gen_answer *a, const struct buf *text, size_t *shown, struct buf *out,
                    struct err *err)
{
    const size_t from = *shown;
    *shown = text->len;
    if (text->len == from)
        return 0;
    a->line_start = text->data[text->len - 1] == '\n';
    return buf_add(out, text->data + from, text->len - from, err);
}

/* Begins a line for what follows on another kind of text. */
static int end_line(struct gen_answer *a, struct buf *out, struct err *err)
{
    const bool begun = !a->line_start;
    a->line_start = true;
    return begun ? buf_add(out, "\n", 1, err) : 0;
}

/* Appends what is new, in lines of their own where its kind changes. */
static int add_new(struct gen_answer *a, struct buf *out, struct err *err)
{
    const struct tool_answer *p = &a->parts;
    int rc = add_text(a, &p->reasoning, &a->reasoning, out, err);
    if (rc == 0 && p->content.len > a->content && (a->content == 0 || a->after_call)) {
        rc = end_line(a, out, err);
        while (a->after_call && a->content < p->content.len &&
               isspace((unsigned char)p->content.data[a->content]))
            a->content++;
        a->after_call = false;
    }
    if (rc == 0)
        rc = add_text(a, &p->content, &a->content, out, err);
    for (; a->calls < json_array_size(p->calls) && rc == 0; a->calls++) {
        rc = end_line(a, out, err);
        if (rc == 0)
            rc = json_append(json_array_get(p->calls, a->calls), JSON_COMPACT, out, err);
        a->after_call = true;
        a->line_start = false;
    }
    return rc;
}

int gen_answer_add(struct gen_answer *a, const char *text, size_t len, struct buf *out, struct err *err)
{
    if (!a->divides)
        return buf_add(out, text, len, err);
    return tool_answer_add(&a->parts, (struct slice){text, len}, err) < 0 ? -1 : add_new(a, out, err);
}

int gen_answer_end(struct gen_answer *a, const struct gen_result *result, struct buf *out,
                   struct err *err)
{
    const bool truncated = result->finish != FINISHED_EOS && result->finish != FINISHED_STOP;
    if (!a->divides)
        return 0;
    return tool_answer_end(&a->parts, truncated, err) < 0 ? -1 : add_new(a, out, err);
}
