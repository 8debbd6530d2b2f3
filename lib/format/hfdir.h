/* A Hugging Face model folder as a source of weights: its JSON files and its safetensors files, single or sharded. Knows
 * names of files, not of tensors. What cannot be read today (pytorch_model.bin, tokenizer.model) is refused with what
 * to do instead. */
#ifndef BMC_HFDIR_H
#define BMC_HFDIR_H

#include "format/source.h"

extern const struct weight_format hf_folder;

#endif
