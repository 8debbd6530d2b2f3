/* EOS ids from the JSON files of a model folder. */
#ifndef BMC_EOS_H
#define BMC_EOS_H

#include "base/json.h"
#include "model/config.h"

/* Sets config->eos from "eos_token_id", one id or a list, of generation_config.json (may be
 * NULL), else of config.json. config->vocab must be set. */
int eos_read(struct config *config, const json_t *generation, const json_t *json, const char *folder,
             struct err *err) MUST_USE;

#endif
