/* A Hugging Face model folder: its JSON files and its weights, single or sharded. Knows names of files,
 * not of tensors. */
#ifndef BMC_HFDIR_H
#define BMC_HFDIR_H

#include "base/json.h"
#include "format/safetensors.h"

/* The small files, mapped; one that does not exist is empty. */
enum hf_file {
    HF_CONFIG,
    HF_GENERATION_CONFIG,
    HF_TOKENIZER,
    HF_VOCAB,
    HF_MERGES,
    HF_TOKENIZER_CONFIG,
    HF_SPECIAL_TOKENS,
    HF_FILE_COUNT
};

struct hf_dir {
    char path[4096];
    struct file_map file[HF_FILE_COUNT];
    json_t *config;            /* config.json */
    json_t *generation_config; /* generation_config.json, or NULL */
    struct safetensors *shard;
    size_t n_shards;
};

/* Opens everything and checks it. What cannot be read today (pytorch_model.bin, GGUF, tokenizer.model)
 * is refused with what to do instead. */
int hf_dir_open(struct hf_dir *dir, const char *path, struct err *err) MUST_USE;

/* The small files only: config.json is still needed. */
int hf_dir_open_tokenizer(struct hf_dir *dir, const char *path, struct err *err) MUST_USE;
void hf_dir_release(struct hf_dir *dir);

/* The tensor of that name in any shard, or NULL. */
const struct st_tensor *hf_dir_find(const struct hf_dir *dir, const char *name);

#endif
