/* EOS ids and sampling defaults of a source. */
#pragma once

#include "format/source.h"
#include "model/config.h"
#include "text/chat/chat.h"

/* Sets config->eos from "eos_token_id", one id or a list, of generation_config.json (may be
 * NULL), else of config.json. config->vocab must be set. */
int eos_read(struct config *config, const json_t *generation, const json_t *json, const char *folder,
             struct err *err) MUST_USE;

/* Sets the defaults in generation_config.json, as transformers reads it: do_sample true sets those that
 * are missing, too, and do_sample false means greedy decoding. Without do_sample only the defaults that
 * are there are set. `ignored` gets a sentence about the last value that cannot be used. */
void sampling_of_source(const struct weight_source *source, struct chat_sampling *sampling,
                        struct err *ignored);
