/* The messages of a conversation as a template wants them, whatever form clients send them in. */
#ifndef BMC_TEMPLATE_MESSAGES_H
#define BMC_TEMPLATE_MESSAGES_H

#include "serve/chat/template_probe.h"

/* Appends messages[from] and those behind it to `list`:
 * - reasoning has all the names by which templates know it;
 * - arguments of tool calls are an object or its JSON text, whichever the template writes;
 * - a content that is null, or missing from an answer, is none or "", whichever the template copes with;
 * - other members that are null are left out, as by transformers, unless the template asks for none. */
int template_messages(const struct jinja_template *template, const struct template_traits *traits,
                      const json_t *messages, size_t from, json_t *list, struct err *err) MUST_USE;

#endif
