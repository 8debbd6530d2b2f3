/* A prompt for tools, for models whose chat template has none. */
#pragma once

#include "base/json.h"
#include "base/mem.h"

/* Messages that say the same without tools, calls and results: the system message describes the tools and the format of
 * calls, "hermes" of models.d/tools; earlier calls and their results are text. The caller releases them. NULL: error. */
json_t *tool_prompt_messages(const json_t *messages, const json_t *tools, struct err *err);
