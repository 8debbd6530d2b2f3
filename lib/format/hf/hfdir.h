/* Parts of a Hugging Face folder that are read by themselves: the index of sharded weights, and MXFP4 tensors. */
#pragma once

#include "format/tensorfile.h"

/* ---- parsing the index of sharded weights ---- */

/* Parses an index called `name`. *files is a JSON object: for each tensor the name of its file, without
 * folders; the caller must json_decref() it. */
int hf_index_parse(json_t **files, const char *text, size_t size, const char *name,
                   struct err *err) MUST_USE;

/* ---- MXFP4 weights of safetensors files: a tensor of blocks and one of scales become one of elements ---- */

/* Makes each tensor NAME_blocks of bytes, for which there is NAME_scales, one of MXFP4: its last two
 * dimensions, blocks and the 16 bytes of each, become one, of elements. Both tensors may be in different files.
 * `folder` is the name in errors. */
int hf_mxfp4_join(struct tensor_file *file, size_t n_files, const char *folder,
                  struct err *err) MUST_USE;
