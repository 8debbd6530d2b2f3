/* What a source says about embeddings and classifiers: pooling, prompts, and the dense layers after pooling. */
#pragma once

#include "format/source.h"
#include "model/convert/convert.h"
#include "model/family/family.h"

/* Sets the members of a configuration that concern pooling, from the source's tensors and what it says; notes are what
 * the user should know. */
void embedding_of_source(struct config *config, const struct weight_source *source,
                         const struct family *family, struct convert_notes *notes);
