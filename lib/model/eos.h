/* The ids that end a text, from the JSON files of a model folder. */
#ifndef BMC_EOS_H
#define BMC_EOS_H

#include "base/json.h"
#include "model/config.h"

/* Sets config->eos: from generation_config.json (or NULL) where it has "eos_token_id", else from config.json; one id or a
 * list. The vocabulary's size must be set. */
int eos_read(struct config *config, const json_t *generation, const json_t *json, const char *folder,
             struct err *err) MUST_USE;

#endif
