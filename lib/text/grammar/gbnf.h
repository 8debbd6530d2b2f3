/* Grammars in GBNF, the notation of llama.cpp. */
#pragma once

#include "text/grammar/expr.h"

/* Reads a grammar, whose rule `root` is what texts match. Errors name the line. */
void gbnf_parse(struct grammar *grammar, const char *text, size_t len);
