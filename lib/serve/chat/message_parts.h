/* Messages whose content is a list of parts, as OpenAI's chat completions have them. */
#ifndef BMC_MESSAGE_PARTS_H
#define BMC_MESSAGE_PARTS_H

#include "base/json.h"

/* A copy of a list of messages in which contents are strings: the texts of their parts, separated by
 * newlines. The caller releases it. NULL: a part is no text, or out of memory. */
json_t *messages_join_parts(const json_t *messages, struct err *err);

/* True if a content is a list with a part of another type than text. */
bool messages_have_other_parts(const json_t *messages);

/* True if a Jinja template reads the parts of contents itself. */
bool template_reads_parts(const char *text);

#endif
