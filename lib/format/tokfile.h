/* A tokenizer alone, without its folder, as a source: a tokenizer.json or a tokenizer.model, whatever its name. */
#ifndef BMC_TOKFILE_H
#define BMC_TOKFILE_H

#include "format/source.h"

extern const struct weight_format tokenizer_file;

#endif
