/* A mapped file of named tensors, independent of its container (safetensors.c, torchzip.c). */
#pragma once

#include "base/file.h"
#include "format/source.h"

struct tensor_file {
    struct file_map map;
    struct source_tensor *tensor; /* sorted by name */
    size_t n_tensors;
    json_t *names; /* owns the strings of tensor[].name */
};

/* The parser of a container format: validates the `size` bytes of a file called `name` and lists
 * its tensors, which point into the borrowed `data`. After an error nothing needs releasing. */
typedef int tensor_parse(struct tensor_file *file, const void *data, size_t size, const char *name,
                         struct err *err) MUST_USE;
tensor_parse safetensors_parse, torchzip_parse;

/* The version of libzip, which torchzip_parse() loads; "(not installed)" if it cannot. */
const char *torchzip_library(void);

/* Maps the file at `path` and calls `parse` for it. */
int tensor_file_open(struct tensor_file *file, const char *path, tensor_parse *parse,
                     struct err *err) MUST_USE;

const struct source_tensor *tensor_file_find(const struct tensor_file *file, const char *name);

/* Frees the list of tensors and unmaps the file; a zeroed struct is accepted. */
void tensor_file_release(struct tensor_file *file);

/* ---- validating and searching lists of tensors ---- */

/* Sorts tensors by name, as the functions below require. */
void tensors_sort(struct source_tensor *tensor, size_t n);

/* Fails if the data of two tensors overlap; `file` is the file name for errors. Accepts tensors in
 * any order and leaves them sorted by name. */
int tensors_check_overlaps(struct source_tensor *tensor, size_t n, const char *file,
                           struct err *err) MUST_USE;

/* Fails if two tensors have the same name. */
int tensors_check_names(const struct source_tensor *tensor, size_t n, const char *file,
                        struct err *err) MUST_USE;

/* Finds a tensor by name with binary search; NULL if there is none. */
const struct source_tensor *tensors_find(const struct source_tensor *tensor, size_t n,
                                         const char *name);
