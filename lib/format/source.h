/* Where weights come from. bmc-convert asks a source for what it needs, and does not know whether that is a folder of
 * safetensors files or something else: a format is one row of the table in source.c, with one struct weight_format. */
#ifndef BMC_SOURCE_H
#define BMC_SOURCE_H

#include "base/json.h"
#include "format/block_types.h"
#include "format/sniff.h"

enum { SOURCE_MAX_DIMS = 8 };

/* A tensor as the source has it. */
struct source_tensor {
    const char *name;
    const char *type_name; /* as the source spells it */
    enum source_type type;
    size_t n_dims;
    size_t dim[SOURCE_MAX_DIMS];    /* slowest first */
    const unsigned char *data;      /* in the mapped file; no alignment promised */
    size_t bytes;                   /* from the first element to behind the last one */
    bool strided;                   /* elements do not follow each other: in each dimension they lie */
    size_t stride[SOURCE_MAX_DIMS]; /* so many elements apart */
};

/* What a source says about its model, as JSON values whatever its format. */
enum source_json {
    SOURCE_CONFIG, /* of config.json's form: "architectures", and what `config` lines of a family read */
    SOURCE_GENERATION, /* of generation_config.json's form: "eos_token_id" */
    SOURCE_JSONS
};

/* The texts that a tokenizer is made of; a source in whose format there are none writes them from what it has. */
enum source_text {
    SOURCE_TOKENIZER,
    SOURCE_VOCAB,
    SOURCE_MERGES,
    SOURCE_TOKENIZER_CONFIG,
    SOURCE_SPECIAL_TOKENS,
    SOURCE_CHAT_TEMPLATE, /* where the configuration of the tokenizer has none */
    SOURCE_TEXTS
};

struct source_bytes {
    const char *data; /* NULL: there is none */
    size_t size;
};

/* How much of a source is looked at. */
enum source_part { SOURCE_ALL, SOURCE_ITS_TOKENIZER };

struct weight_source {
    const struct weight_format *format;
    char path[4096];                 /* names the source in errors */
    char config_name[4096 + 16];     /* and what config() gives, */
    char tokenizer_name[4096 + 512]; /* and the first text of its tokenizer */
    size_t tokens;                   /* of its tokenizer, as far as open() knows; 0: it does not */
    void *state;                     /* the format's own */
};

/* What all slots but open() give is borrowed until close(). */
struct weight_format {
    enum file_kind kind; /* what path_sniff() says of such a source */

    /* Opens and checks what lies at source->path; sets both names and state. After an error close() is called, too:
     * state is NULL, or what close() can free. */
    int (*open)(struct weight_source *source, enum source_part part, struct err *err);

    /* NULL: there is none, which SOURCE_CONFIG never is where all of the source was opened. */
    const json_t *(*config)(const struct weight_source *source, enum source_json which);

    /* The tensor of that name, or NULL. */
    const struct source_tensor *(*find)(const struct weight_source *source, const char *name);

    /* All tensors, one after the other; NULL: there is no nth one. */
    const struct source_tensor *(*tensor)(const struct weight_source *source, size_t nth);

    struct source_bytes (*tokenizer)(const struct weight_source *source, enum source_text which);

    /* What follows the role in a `tensor` line (bmc-family(5)), of which there may be several: what the source calls that
     * role's tensor, and what is done to it. False: there is no nth one. A source that has no such slot calls tensors as
     * the family does. */
    bool (*tensor_line)(const struct weight_source *source, const char *role, size_t nth, char *line,
                        size_t size);

    /* Called now and then between reads: what was read of the tensors need not stay in memory. NULL: nothing is to be done. */
    void (*forget)(const struct weight_source *source);

    void (*close)(struct weight_source *source);
};

/* Opens what lies at `path`, whatever format it is of. What cannot be read is refused with what it is and what to do. */
int weight_source_open(struct weight_source *source, const char *path, enum source_part part,
                       struct err *err) MUST_USE;

/* One that was never opened is all zero. */
void weight_source_close(struct weight_source *source);

#endif
