/* A GGUF file, or several that one model was split into, as a source of weights. */
#ifndef BMC_GGUFSOURCE_H
#define BMC_GGUFSOURCE_H

#include "format/source.h"

extern const struct weight_format gguf_source;

#endif
