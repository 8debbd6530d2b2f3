/* A Hugging Face model folder as a source of weights: its JSON files, and its weights as safetensors or PyTorch
 * files, single or sharded. Knows names of files, not of tensors. */
#ifndef BMC_HFDIR_H
#define BMC_HFDIR_H

#include "format/source.h"

extern const struct weight_format hf_folder;

#endif
