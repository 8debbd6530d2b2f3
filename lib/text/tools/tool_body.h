/* The bodies of calls, for the parser of answers. */
#pragma once

#include "text/tools/tool_parser.h"

enum { BODY_MORE, BODY_DONE, BODY_BAD };

/* Reads on in the body of p->pattern from p->at. BODY_MORE: it goes on; BODY_BAD: it is none; or -1. */
int tool_read_body(struct tool_parser *p, bool last, struct err *err) MUST_USE;
