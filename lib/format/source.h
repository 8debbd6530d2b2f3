/* Sources of weights for bmc-convert: Hugging Face folders, GGUF files, tokenizer files. A
 * format is one struct weight_format and one row of the table in source.c. */
#ifndef BMC_SOURCE_H
#define BMC_SOURCE_H

#include "base/json.h"
#include "format/gguf/block_types.h"
#include "format/detect.h"

enum { SOURCE_MAX_DIMS = 8 };

/* A tensor of a source. */
struct source_tensor {
    const char *name;
    const char *type_name; /* spelled as in the source */
    enum source_type type;
    size_t n_dims;
    size_t dim[SOURCE_MAX_DIMS]; /* slowest dimension first */
    const unsigned char *data;   /* in the mapped file, unaligned */
    size_t bytes;                /* from the first to the end of the last element */
    /* not contiguous: use `stride` */
    bool strided;
    size_t stride[SOURCE_MAX_DIMS]; /* in elements, per dimension */
};

/* A source's configuration as JSON, whatever its own format. */
enum source_json {
    SOURCE_CONFIG,     /* like config.json */
    SOURCE_GENERATION, /* like generation_config.json: "eos_token_id" */
    SOURCE_JSONS
};

/* Tokenizer files; formats without such files generate them. */
enum source_text {
    SOURCE_TOKENIZER,
    SOURCE_VOCAB,
    SOURCE_MERGES,
    SOURCE_TOKENIZER_CONFIG,
    SOURCE_SPECIAL_TOKENS,
    SOURCE_CHAT_TEMPLATE, /* if not in tokenizer_config.json */
    SOURCE_TEXTS
};

struct source_bytes {
    const char *data; /* NULL: none */
    size_t size;
};

/* How much of a source is opened. */
enum source_scope { SOURCE_ALL, SOURCE_TOKENIZER_ONLY };

struct weight_source {
    const struct weight_format *format;
    char path[4096];                 /* for errors */
    char config_name[4096 + 16];     /* for errors in config() */
    char tokenizer_name[4096 + 512]; /* for errors in the tokenizer; empty: there is none */
    size_t tokens;                   /* size of its vocabulary; 0: unknown */
    void *state;                     /* owned by the format */
};

/* Results are borrowed and valid until close(). */
struct weight_format {
    enum file_kind kind; /* the kind of path it handles */

    /* Opens and validates source->path and sets both names and `state`. After an error close()
     * is called, so `state` must be NULL or closable. */
    int (*open)(struct weight_source *source, enum source_scope scope, struct err *err);

    /* NULL: none; SOURCE_CONFIG always exists with SOURCE_ALL. */
    const json_t *(*config)(const struct weight_source *source, enum source_json which);

    /* The tensor of that name, or NULL. */
    const struct source_tensor *(*find)(const struct weight_source *source, const char *name);

    /* Iterates over all tensors; NULL at the end. */
    const struct source_tensor *(*tensor)(const struct weight_source *source, size_t nth);

    struct source_bytes (*tokenizer)(const struct weight_source *source, enum source_text which);

    /* The source's own tensor names: the text after the kind in the nth `tensor` line
     * (bmc-family(5)) for a weight kind; false if there is none. NULL: names are those of the
     * family file. */
    bool (*tensor_line)(const struct weight_source *source, const char *kind, size_t nth, char *line,
                        size_t size);

    /* Tells the kernel that pages read so far can be dropped. NULL: nothing to do. */
    void (*release_pages)(const struct weight_source *source);

    void (*close)(struct weight_source *source);
};

extern const struct weight_format hf_folder, gguf_source;

/* A tokenizer.json or tokenizer.model, recognised by content. */
extern const struct weight_format tokenizer_file;

/* Opens `path` in whatever format it has. The error for an unsupported file says what it is and
 * what to do. */
int weight_source_open(struct weight_source *source, const char *path, enum source_scope scope,
                       struct err *err) MUST_USE;

/* A zeroed struct is accepted. */
void weight_source_close(struct weight_source *source);

#endif
