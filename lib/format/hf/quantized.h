/* Quantised weights of Hugging Face folders, as "quantization_config" describes them. */
#pragma once

#include "format/split_weights.h"
#include "format/tensorfile.h"

/* The method that "quantization_config" of a configuration names, "" if there is no such member or it is null. Fails
 * if the method, or a variant of it, is not supported. `folder` is the folder's name in errors. */
int quantized_method(const char **method, const json_t *config, const char *folder,
                     struct err *err) MUST_USE;

/* Joins the tensors of each quantised matrix of a folder's weight files: of GPTQ, AWQ, compressed-tensors and FP8. A
 * matrix NAME becomes the source tensor NAME.weight, with `split` set; its other tensors are marked as its scales. The
 * matrices are added to *list, which quantized_release() frees, also after an error. */
int quantized_join(struct split_weights **list, struct tensor_file *file, size_t n_files,
                   const json_t *config, const char *folder, struct err *err) MUST_USE;
void quantized_release(struct split_weights *list);
