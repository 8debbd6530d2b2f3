/* Reads the sampling defaults of a source. */
#ifndef BMC_SAMPLING_SOURCE_H
#define BMC_SAMPLING_SOURCE_H

#include "format/source.h"
#include "text/chat/chat.h"

/* Sets the defaults in generation_config.json, as transformers reads it: do_sample true sets those that
 * are missing, too, and do_sample false means greedy decoding. Without do_sample only the defaults that
 * are there are set. `ignored` gets a sentence about the last value that cannot be used. */
void sampling_of_source(const struct weight_source *source, struct chat_sampling *sampling,
                        struct err *ignored);

#endif
