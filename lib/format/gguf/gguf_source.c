/* A GGUF model, in one file or split, as a source of weights. */
#include "format/gguf/gguf_config.h"
#include "format/gguf/gguf_source.h"
#include "format/gguf/gguf_tokenizer.h"
#include "format/sampling.h"

struct gguf_state {
    struct gguf_set set;
    const struct gguf_arch *arch;
    struct buf tokenizer, tokenizer_config; /* as JSON */
};

/* Reads ARCH.pooling_type, which models for embeddings have. */
static int read_pooling(json_t **json, const struct gguf_state *s, struct err *err)
{
    static const char *const names[] = {NULL, "mean", "cls", "last"};
    struct gguf_element e = gguf_elements(gguf_arch_value(s->arch, &s->set, "pooling_type"));
    if (!e.of || !gguf_is_number(e.of) || !gguf_next(&e) || e.integer <= 0)
        return 0;
    const char *name = (uint64_t)e.integer < ARRAY_LEN(names) ? names[e.integer] : NULL;
    *json = json_pack("{s:s, s:b, s:s*}", "pooling", name ? name : "unsupported", "normalize", true,
                      "unsupported", name ? NULL : "its pooling_type");
    return *json ? 0 : err_no_memory(err, "a pooling type");
}

/* Derives what a source has from its files. */
static int read_set(struct weight_source *source, enum source_scope scope, struct err *err)
{
    struct gguf_state *s = source->state;
    const char *path = source->path;
    const struct gguf *first = &s->set.file[0];
    snprintf(source->config_name, sizeof source->config_name, "%s", path);
    snprintf(source->tokenizer_name, sizeof source->tokenizer_name, "%s", path);
    if (scope == SOURCE_ALL &&
        (gguf_check_kind(&s->set, path, err) < 0 || gguf_arch_find(&s->arch, &s->set, path, err) < 0 ||
         gguf_check_values(s->arch, &s->set, path, err) < 0 ||
         gguf_config(&source->json[SOURCE_CONFIG], s->arch, &s->set, path, err) < 0 ||
         read_pooling(&source->json[SOURCE_EMBEDDING], s, err) < 0))
        return -1;
    if (gguf_generation(&source->json[SOURCE_GENERATION], &s->set, err) < 0 ||
        gguf_tokenizer_json(first, path, &s->tokenizer, err) < 0 ||
        gguf_tokenizer_config(first, &s->tokenizer_config, err) < 0 ||
        source_alloc_lists(source, s->set.n_files, err) < 0)
        return -1;
    source->tokens = gguf_value(first, "tokenizer.ggml.tokens")->count;
    source->text[SOURCE_TOKENIZER] = (struct source_bytes){s->tokenizer.data, s->tokenizer.len};
    source->text[SOURCE_TOKENIZER_CONFIG] =
        (struct source_bytes){s->tokenizer_config.data, s->tokenizer_config.len};
    for (size_t i = 0; i < s->set.n_files; i++) {
        const struct gguf *file = &s->set.file[i];
        source->list[i] = (struct source_list){file->tensor, file->n_tensors, &file->map};
    }
    return 0;
}

static int open_set(struct weight_source *source, enum source_scope scope, struct err *err)
{
    struct gguf_state *s = source->state = calloc(1, sizeof *s);
    if (!s)
        return err_no_memory(err, "%s", source->path);
    return gguf_set_open(&s->set, source->path, scope == SOURCE_ALL, err) < 0
               ? -1
               : read_set(source, scope, err);
}

static bool tensor_line(const struct weight_source *source, const char *kind, size_t nth, char *line,
                        size_t size)
{
    const struct gguf_state *s = source->state;
    return gguf_tensor_line(s->arch, kind, nth, line, size);
}

/* A checksum that any change of a word changes, as each step is a bijection of its lane. BLAKE2b would take longer for a
 * vocabulary than starting a program. */
static void add_header(struct hasher *hasher, const unsigned char *header, size_t bytes)
{
    enum { LANES = 4, BLOCK = LANES * sizeof(uint64_t) };
    uint64_t lane[LANES] = {1, 2, 3, 4}, word[LANES];
    for (size_t at = 0; at + BLOCK <= bytes; at += BLOCK) {
        memcpy(word, header + at, BLOCK);
        for (size_t i = 0; i < LANES; i++) {
            lane[i] = (lane[i] ^ word[i]) * 0x9e3779b97f4a7c15u;
            lane[i] ^= lane[i] >> 32;
        }
    }
    hasher_add(hasher, lane, sizeof lane);
    hasher_add(hasher, header + bytes / BLOCK * BLOCK, bytes % BLOCK);
}

static int identify(const char *path, struct hasher *hasher, struct err *err)
{
    struct gguf_set set;
    if (gguf_set_open(&set, path, true, err) < 0)
        return -1;
    for (size_t i = 0; i < set.n_files; i++) {
        hasher_add_attributes(hasher, &set.file[i].attributes);
        add_header(hasher, set.file[i].map.data, set.file[i].header_bytes);
    }
    gguf_set_release(&set);
    return 0;
}

static void close_set(struct weight_source *source)
{
    struct gguf_state *s = source->state;
    if (!s)
        return;
    gguf_set_release(&s->set);
    buf_release(&s->tokenizer);
    buf_release(&s->tokenizer_config);
    free(s);
}

const struct weight_format gguf_source = {
    .kind = KIND_GGUF,
    .open = open_set,
    .tensor_line = tensor_line,
    .identify = identify,
    .close = close_set,
};

/* ---- sources without a file ---- */

const struct gguf *gguf_of_source(const struct weight_source *source)
{
    const struct gguf_state *s = source->format == &gguf_source ? source->state : NULL;
    return s ? &s->set.file[0] : NULL;
}

int gguf_names_open(struct weight_source *source, const struct gguf_arch *arch, struct err *err)
{
    struct gguf_state *s = calloc(1, sizeof *s);
    *source = (struct weight_source){.format = &gguf_source, .state = s};
    if (!s)
        return err_no_memory(err, "names of tensors");
    s->arch = arch;
    return 0;
}

int gguf_image_open(struct weight_source *source, const void *head, size_t size, const char *name,
                    struct err *err)
{
    struct gguf_state *s = calloc(1, sizeof *s);
    *source = (struct weight_source){.format = &gguf_source, .state = s};
    snprintf(source->path, sizeof source->path, "%s", name);
    int rc = s && (s->set.file = calloc(1, sizeof *s->set.file)) ? 0 : err_no_memory(err, "%s", name);
    if (rc == 0)
        rc = gguf_parse(&s->set.file[0], head, size, name, true, err);
    if (rc == 0) {
        s->set.n_files = 1;
        rc = read_set(source, SOURCE_ALL, err);
    }
    return rc;
}

/* ---- generation_config.json: EOS ids and sampling defaults ---- */

static int put_eos_ids(const struct gguf *gguf, json_t *generation, struct err *err)
{
    static const char *const ends[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    int64_t ids[ARRAY_LEN(ends)];
    json_t *list = json_array();
    int rc = list ? 0 : err_no_memory(err, "EOS ids");
    for (size_t i = 0; i < ARRAY_LEN(ends) && rc == 0; i++) {
        ids[i] = gguf_integer(gguf, ends[i], -1);
        bool known = ids[i] < 0;
        for (size_t before = 0; before < i; before++)
            known |= ids[before] == ids[i];
        if (!known)
            rc = json_push(list, json_integer(ids[i]), err);
    }
    if (rc == 0)
        return json_put(generation, "eos_token_id", list, err);
    json_decref(list);
    return -1;
}

/* Sampling defaults. Samplers in another order, general.sampling.sequence, are not read. */
static int put_sampling(const struct gguf *gguf, json_t *generation, struct err *err)
{
    enum { LAST_N = 64 }; /* tokens that GGUF's repetition penalty considers by default */
    for (size_t i = 0; i < SAMPLING_COUNT_OF_PARAMS; i++) {
        char key[64];
        if (!sampling_params[i].gguf)
            continue;
        snprintf(key, sizeof key, "general.sampling.%s", sampling_params[i].gguf);
        struct gguf_element e = gguf_elements(gguf_value(gguf, key));
        if (e.of && gguf_next(&e) &&
            json_put(generation, sampling_params[i].generation, gguf_json(&e), err) < 0)
            return -1;
    }
    if (json_object_get(generation, "repetition_penalty") &&
        !json_object_get(generation, "repeat_last_n"))
        return json_put(generation, "repeat_last_n", json_integer(LAST_N), err);
    return 0;
}

int gguf_generation(json_t **generation, const struct gguf_set *set, struct err *err)
{
    json_t *made = json_object();
    int rc = made ? 0 : err_no_memory(err, "EOS ids");
    if (rc == 0)
        rc = put_eos_ids(&set->file[0], made, err);
    if (rc == 0)
        rc = put_sampling(&set->file[0], made, err);
    *generation = json_or_null(made, rc, err);
    return *generation ? 0 : -1;
}
