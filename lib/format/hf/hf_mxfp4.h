/* MXFP4 weights of safetensors files, as gpt-oss has them. */
#ifndef BMC_HF_MXFP4_H
#define BMC_HF_MXFP4_H

#include "format/tensorfile.h"

/* Makes each tensor NAME_blocks of bytes, for which there is NAME_scales, one of MXFP4: its last two
 * dimensions, blocks and the 16 bytes of each, become one, of elements. Both tensors may be in different files.
 * `folder` is the name in errors. */
int hf_mxfp4_join(struct tensor_file *file, size_t n_files, const char *folder,
                  struct err *err) MUST_USE;

#endif
