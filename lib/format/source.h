/* Sources of weights for bmc-convert: Hugging Face folders, GGUF files, tokenizer files. A
 * format is one struct weight_format and one row of the table in source.c. */
#pragma once

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "format/gguf/block_types.h"
#include "format/detect.h"

enum { SOURCE_MAX_DIMS = 8, SOURCE_MAX_LAYERS = 1024 };

/* A tensor of a Hugging Face folder or GGUF file. */
struct source_tensor {
    const char *name;
    const char *type_name; /* element type as spelled in the source file */
    enum dtype type;
    size_t n_dims;
    size_t dim[SOURCE_MAX_DIMS]; /* slowest dimension first */
    const unsigned char *data;   /* in the mapped file, unaligned */
    /* of quantised blocks in data[] without their scales: a byte for each (MXFP4 in safetensors) */
    const unsigned char *scales;
    /* how its values are read (split_weights.h); NULL: from data[] */
    const struct split_weights *split;
    bool is_scales; /* it is the scales of another tensor, or otherwise part of it */
    size_t bytes;   /* from the start of the first element to the end of the last */
    /* true: elements are not contiguous, use `stride` */
    bool strided;
    size_t stride[SOURCE_MAX_DIMS]; /* in elements, per dimension */
};

/* Parts of a source's configuration; converted to JSON if its format has none. */
enum source_json {
    SOURCE_CONFIG,     /* like config.json */
    SOURCE_GENERATION, /* like generation_config.json: EOS ids and sampling defaults */
    SOURCE_EMBEDDING, /* how embeddings are made of hidden states (sentence-transformers in hf/hfdir.c) */
    SOURCE_JSONS
};

/* Hugging Face's tokenizer files; other formats generate the equivalent of them. */
enum source_text {
    SOURCE_TOKENIZER,
    SOURCE_VOCAB,
    SOURCE_MERGES,
    SOURCE_ADDED_TOKENS,
    SOURCE_TOKENIZER_CONFIG,
    SOURCE_SPECIAL_TOKENS,
    SOURCE_CHAT_TEMPLATE, /* chat_template.jinja; often in tokenizer_config.json instead */
    SOURCE_CHAT_JSON,     /* chat_template.json: an object with "chat_template" */
    SOURCE_CHAT_FOLDER,   /* additional_chat_templates/NAME.jinja, as an object like that one */
    SOURCE_TEXTS
};

struct source_bytes {
    const char *data; /* NULL: none */
    size_t size;
};

/* How much of a source is opened. */
enum source_scope { SOURCE_ALL, SOURCE_TOKENIZER_ONLY };

/* The tensors of one file, sorted by name. */
struct source_list {
    const struct source_tensor *tensor;
    size_t n;
    const struct file_map *map; /* the file */
};

/* What a format has read. Everything that it returns is borrowed and valid until weight_source_close(). */
struct weight_source {
    const struct weight_format *format;
    char path[4096];                        /* for error messages */
    char config_name[4096 + 16];            /* file of the configuration, for error messages */
    char tokenizer_name[4096 + 512];        /* file of the tokenizer, for error messages; empty: none */
    size_t tokens;                          /* size of its vocabulary; 0: unknown */
    json_t *json[SOURCE_JSONS];             /* owned; NULL: none, but SOURCE_CONFIG with SOURCE_ALL */
    struct source_bytes text[SOURCE_TEXTS]; /* data is NULL: none */
    struct source_list *list;               /* [n_lists], owned */
    size_t n_lists, n_searched;             /* source_find() looks in the first n_searched */
    void *state;                            /* private data of the format */
};

/* One format of weight sources. */
struct weight_format {
    enum file_kind kind; /* the kind of file or folder that this format reads */

    /* Opens and validates source->path and sets the members of *source, those with SOURCE_TOKENIZER_ONLY that a
     * tokenizer needs. After an error close() is called, so `state` must be NULL or closable. */
    int (*open)(struct weight_source *source, enum source_scope scope, struct err *err);

    /* Writes the source's own tensor name for a weight kind ("layer.q.weight") to `line`, as a
     * `tensor` line of bmc-family(5) has it after the kind. `nth` counts alternative names; false
     * after the last. NULL: the names are those of the family file. */
    bool (*tensor_line)(const struct weight_source *source, const char *kind, size_t nth, char *line,
                        size_t size);

    /* Adds what source_identify() is about to the hasher. */
    int (*identify)(const char *path, struct hasher *hasher, struct err *err);

    void (*close)(struct weight_source *source); /* frees `state` */
};

extern const struct weight_format hf_folder, gguf_source;

/* The format of a single tokenizer.json or tokenizer.model, distinguished by content, or tekken.json. */
extern const struct weight_format tokenizer_file;

/* Opens a source of weights, in whatever supported format `path` has. The error for an
 * unsupported file says what it is and what to do. */
int weight_source_open(struct weight_source *source, const char *path, enum source_scope scope,
                       struct err *err) MUST_USE;

/* Identifies the present state of a source, without reading its weights: by the device, inode, size and time of
 * modification of each of its files, and by the headers of GGUF files. A file that is replaced or written, also under
 * its old name, gives another *id; a folder or GGUF file that is moved within a file system keeps it. */
int source_identify(const char *path, struct hash *id, struct err *err) MUST_USE;

/* Closes a source; a zeroed struct is accepted. */
void weight_source_close(struct weight_source *source);

/* Of formats: allocates the n lists of a source, all of which are searched unless n_searched is lowered. */
int source_alloc_lists(struct weight_source *source, size_t n, struct err *err) MUST_USE;

/* The tensor of that name; the nth of all, in order of the lists. NULL: there is none. */
const struct source_tensor *source_find(const struct weight_source *source, const char *name);
const struct source_tensor *source_nth(const struct weight_source *source, size_t nth);

/* Tells the system that mapped pages read so far can be dropped. */
void source_release_pages(const struct weight_source *source);
