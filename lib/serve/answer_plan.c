/* From options of reasoning and tool calls to markers and constraints of the generation loop. */
#include "serve/answer_plan.h"

#include "base/mem.h"
#include "base/text_util.h"

static int find_format(struct answer_plan *plan, struct chat_prompts *prompts, struct err *err)
{
    if (chat_prompts_open(prompts, err) < 0)
        return -1;
    plan->format = chat_prompts_tools(prompts);
    return plan->format ? 0 : err_set(err, "there is no folder with formats of tool calls");
}

/* ---- reasoning ---- */

/* The pattern of reasoning: the first whose opening the vocabulary has a token of, else the first. */
static const struct tool_pattern *find_reasoning(const struct tool_format *format,
                                                 const struct tokenizer *tok)
{
    const struct tool_pattern *first = NULL;
    for (size_t i = 0; i < format->n_patterns; i++) {
        const struct tool_pattern *pattern = &format->pattern[i];
        const char *opening = tool_pattern_opening(pattern);
        AUTO(ids_release) struct ids found = {0};
        struct err ignored;
        if (pattern->use != TOOL_THINKS)
            continue;
        first = first ? first : pattern;
        if (tokenizer_find_added(tok, opening, strlen(opening), &found, &ignored) == 0 && found.len)
            return pattern;
    }
    return first;
}

/* A copy without white space around it. */
static char *copy_trimmed(const char *text, struct err *err)
{
    const char *from = text + strspn(text, " \t\r\n");
    char *copy = strndup(from, text_trimmed(from, strlen(from)));
    return copy ? copy : (err_no_memory(err, "a marker"), NULL);
}

/* Appends the end of a prompt as text, where reasoning may have begun. */
static int add_tail(const struct tokenizer *tok, const struct ids *prompt, struct buf *text,
                    struct err *err)
{
    enum { TAIL_TOKENS = 32 };
    for (size_t i = prompt->len - size_min(prompt->len, TAIL_TOKENS); i < prompt->len; i++)
        if (tokenizer_piece(tok, prompt->id[i], text, err) < 0)
            return -1;
    return 0;
}

/* True if a text ends with a marker and white space. */
static bool ends_with(const struct buf *text, const char *marker)
{
    const size_t len = text_trimmed(text->data, text->len), n = strlen(marker);
    return n && len >= n && memcmp(text->data + len - n, marker, n) == 0;
}

static int plan_reasoning(struct answer_plan *plan, const struct tokenizer *tok,
                          const struct ids *prompt, struct err *err)
{
    const struct answer_options *o = &plan->options;
    const struct tool_pattern *pattern = find_reasoning(plan->format, tok);
    struct answer_markers *m = &plan->markers;
    AUTO(buf_release) struct buf tail = {0}, close = {0};
    if (!pattern)
        return o->budget == GENERATE_NO_LIMIT
                   ? 0
                   : err_set(err, "the format \"%s\" of the chat template has no reasoning to limit",
                             plan->format->name);
    const char *closing = tool_pattern_closing(pattern);
    if (!(plan->begin = copy_trimmed(tool_pattern_opening(pattern), err)) ||
        !(plan->end = copy_trimmed(closing, err)) || add_tail(tok, prompt, &tail, err) < 0)
        return -1;
    m->thought_begin = plan->begin;
    m->thought_end = plan->end;
    m->in_thought = ends_with(&tail, plan->begin);
    m->thought_tokens = o->budget;
    if (o->budget == GENERATE_NO_LIMIT)
        return 0;
    if (buf_addf(&close, err, "%s%s%s", o->last_words ? "\n" : "", o->last_words ? o->last_words : "",
                 closing) < 0 ||
        tokenizer_encode(tok, close.data, close.len, false, &plan->close, err) < 0)
        return -1;
    m->close = &plan->close;
    return 0;
}

/* ---- calls ---- */

static int plan_calls(struct answer_plan *plan, const struct tokenizer *tok,
                      struct gen_request *request, struct err *err)
{
    const struct answer_options *o = &plan->options;
    const bool must = o->choice.kind == TOOL_CHOICE_REQUIRED || o->choice.kind == TOOL_CHOICE_NAME;
    AUTO(buf_release) struct buf text = {0}, trigger = {0};
    struct err why;
    if (!json_array_size(o->tools) && !must)
        return 0;
    if (request->constraint)
        return must ? err_set(err,
                              "\"tool_choice\" asks for a call, and another constraint for other text")
                    : 0;
    int rc = tool_constraint(plan->format, o->tools, &o->choice, tok, &text, &trigger, &why);
    if (rc == 0 && text.len)
        rc = constraint_cache_get(plan->constraints, CONSTRAINT_STRUCTURE, text.data, text.len,
                                  &plan->constraint, &why);
    if (rc < 0 && !o->choice_given)
        return 0;
    if (rc < 0)
        return *err = why, -1;
    if (!plan->constraint)
        return 0;
    request->constraint = plan->constraint;
    if (!trigger.len)
        return 0;
    if (!(plan->trigger = strdup(trigger.data)))
        return err_no_memory(err, "a marker");
    plan->markers.trigger[plan->markers.n_triggers++] = plan->trigger;
    return 0;
}

int answer_plan_make(struct answer_plan *plan, const struct answer_options *options,
                     struct chat_prompts *prompts, struct constraint_cache *constraints,
                     const struct ids *prompt, struct gen_request *request, struct err *err)
{
    const struct tokenizer *tok = prompts->model->tok;
    const bool calls = options->choice.kind != TOOL_CHOICE_NONE &&
                       (json_array_size(options->tools) || options->choice.kind != TOOL_CHOICE_AUTO);
    *plan = (struct answer_plan){.options = *options, .constraints = constraints};
    if (!calls && options->reasoning == REASONING_AS_IS && options->budget == GENERATE_NO_LIMIT)
        return 0;
    if (find_format(plan, prompts, err) < 0 || plan_reasoning(plan, tok, prompt, err) < 0 ||
        (calls && plan_calls(plan, tok, request, err) < 0))
        return -1;
    request->markers = &plan->markers;
    return 0;
}

void answer_plan_release(struct answer_plan *plan)
{
    if (plan->constraint)
        constraint_cache_put(plan->constraints, plan->constraint);
    free(plan->begin);
    free(plan->end);
    free(plan->trigger);
    ids_release(&plan->close);
    *plan = (struct answer_plan){0};
}

void answer_plan_report(const struct answer_plan *plan, struct tool_answer *parts)
{
    const enum reasoning_form form = plan->options.reasoning;
    parts->hides_reasoning = form == REASONING_HIDE;
    parts->certain = plan->constraint ? tool_format_calls(plan->format) : NULL;
    if (form == REASONING_SHOW) {
        parts->before_reasoning = plan->begin;
        parts->after_reasoning = plan->end;
    }
}
