/* Parts of a Hugging Face folder that are read by themselves: the index of sharded weights, and MXFP4 tensors. */
#pragma once

#include "format/tensorfile.h"

/* ---- parsing the index of sharded weights ---- */

/* Parses an index called `name`. *files is a JSON object: for each tensor the name of its file, without
 * folders; the caller must json_decref() it. */
int hf_index_parse(json_t **files, const char *text, size_t size, const char *name,
                   struct err *err) MUST_USE;

/* ---- sentence-transformers' modules ---- */

/* Reads modules.json, the configurations of its modules and config_sentence_transformers.json in the folder `path`. Sets
 * *json, which the caller must json_decref(), to an object: "pooling" (mean, last, cls, or unsupported), "normalize"
 * (false if there is no such module), "unsupported" (what is not supported, for a message), "dense" (how many dense
 * layers), "dense_activation" and "prompts" (texts by name, that of the default one also by the name ""); or to NULL if
 * there is none. */
int hf_pooling_read(json_t **json, const char *path, struct err *err) MUST_USE;

/* ---- MXFP4 weights of safetensors files: a tensor of blocks and one of scales become one of elements ---- */

/* Makes each tensor NAME_blocks of bytes, for which there is NAME_scales, one of MXFP4: its last two
 * dimensions, blocks and the 16 bytes of each, become one, of elements. Both tensors may be in different files.
 * `folder` is the name in errors. */
int hf_mxfp4_join(struct tensor_file *file, size_t n_files, const char *folder,
                  struct err *err) MUST_USE;
