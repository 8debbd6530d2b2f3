/* What a request says about the reasoning and the tool calls of its answer: the limits of them, and how they are reported. */
#pragma once

#include "decode/gen_types.h"
#include "serve/chat/chat_prompts.h"
#include "text/tools/tool_answer.h"
#include "text/tools/tool_constraint.h"

/* How reasoning is reported: not divided from the text, unless calls are; not at all; in the text, between its markers,
 * which are spelled even if they are special tokens; apart from the text. */
enum reasoning_form { REASONING_AS_IS, REASONING_HIDE, REASONING_SHOW, REASONING_SEPARATE };
#define REASONING_FORMS "hide|show|separate"

struct answer_options {
    enum reasoning_form reasoning;
    size_t budget;          /* tokens of reasoning, or GENERATE_NO_LIMIT */
    const char *last_words; /* that end reasoning whose budget is used up; NULL: none */
    struct tool_choice choice;
    bool choice_given;   /* else calls are left to the model where a schema is not supported */
    const json_t *tools; /* OpenAI's list, or NULL */
};

/* Zeros at first. */
struct answer_plan {
    struct answer_options options;
    const struct tool_format *format; /* of the answer's parts */
    struct answer_markers markers;
    char *begin, *end, *trigger; /* texts of `markers` */
    struct ids close;
    struct constraint_cache *constraints;
    struct constraint *constraint; /* on calls; NULL: none */
};

/* Makes the plan for an answer to a prompt, and sets it in `request`, which borrows the plan. */
int answer_plan_make(struct answer_plan *plan, const struct answer_options *options,
                     struct chat_prompts *prompts, struct constraint_cache *constraints,
                     const struct ids *prompt, struct gen_request *request, struct err *err) MUST_USE;
void answer_plan_release(struct answer_plan *plan);

/* Sets how the parts of an answer that has begun report reasoning. */
void answer_plan_report(const struct answer_plan *plan, struct tool_answer *parts);
