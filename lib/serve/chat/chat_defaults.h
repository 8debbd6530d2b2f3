/* Default sampling settings: the program's, and those that a model brings for chats. */
#ifndef BMC_CHAT_DEFAULTS_H
#define BMC_CHAT_DEFAULTS_H

#include "decode/sample/sampler.h"
#include "text/chat/chat_sampling.h"

/* The settings of a sequence for which nobody gave any: greedy decoding. `chat`: defaults of the model,
 * which replace the program's; NULL: none. */
struct sampler_options default_sampling(const struct chat_sampling *chat);

#endif
