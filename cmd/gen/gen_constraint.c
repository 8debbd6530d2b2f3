/* Opens the constraint and the sequence breakers that options give. */
#include <string.h>

#include "base/file.h"
#include "gen/gen.h"

/* Appends a file's text. */
static int read_file(const char *path, struct buf *text, struct err *err)
{
    enum { MOST = 16 << 20 };
    struct file_map map;
    if (file_map(&map, path, err) < 0)
        return -1;
    const int rc =
        map.size > MOST
            ? err_set(err, "%s: %zu bytes are too many for a constraint: at most %d are read", path,
                      map.size, MOST)
            : buf_add(text, map.data, map.size, err);
    file_unmap(&map);
    return rc;
}

/* True for a schema itself, false for the name of the file that has it. */
static bool is_schema(const char *option)
{
    const char *start = option + strspn(option, " \t\r\n");
    return *start == '{' || strcmp(start, "true") == 0 || strcmp(start, "false") == 0;
}

static int read_schema(const char *option, struct buf *text, struct err *err)
{
    return is_schema(option) ? buf_add(text, option, strlen(option), err)
                             : read_file(option, text, err);
}

int gen_open_breakers(struct gen *gen, struct err *err)
{
    const struct opt_list *given = &gen->options->dry_breaker;
    const bool none = given->n == 1 && strcmp(given->text[0], "none") == 0;
    gen->stored_breakers = (void *)(uintptr_t)gen->sampling.dry_text;
    gen->breakers = (struct dry_breakers){
        .tok = gen->model->tok,
        .vocab = gen->model->config.vocab,
        .text = given->n               ? given->text
                : gen->stored_breakers ? gen->stored_breakers
                                       : dry_default_breakers,
        .n_texts = none                   ? 0
                   : given->n             ? given->n
                   : gen->stored_breakers ? gen->sampling.n_dry_texts
                                          : ARRAY_LEN(dry_default_breakers),
    };
    gen->sampling.dry_text = gen->breakers.text == dry_default_breakers ? NULL : gen->breakers.text;
    gen->sampling.n_dry_texts = gen->breakers.n_texts;
    gen->serve.breakers = &gen->breakers;
    if (!dry_is_on(&gen->sampling))
        return 0;
    const int rc = dry_breakers_find(&gen->breakers, err);
    gen->sampling.dry_breaker = gen->serve.options.sampling.dry_breaker = gen->breakers.token;
    return rc;
}

int gen_open_constraint(struct gen *gen, struct err *err)
{
    const struct gen_options *o = gen->options;
    const enum constraint_kind kind = o->json_schema ? CONSTRAINT_JSON_SCHEMA
                                      : o->grammar   ? CONSTRAINT_GRAMMAR
                                      : o->regex     ? CONSTRAINT_REGEX
                                      : o->choice    ? CONSTRAINT_CHOICE
                                                     : CONSTRAINT_NONE;
    struct buf text = {0};
    int rc = constraint_cache_open(&gen->constraints, gen->model->tok, gen->model->config.vocab, err);
    gen->serve.constraints = gen->constraints;
    if (rc == 0)
        constraint_cache_on_note(gen->constraints, gen_say_note, gen);
    if (rc < 0 || kind == CONSTRAINT_NONE)
        return rc;
    rc = kind == CONSTRAINT_JSON_SCHEMA ? read_schema(o->json_schema, &text, err)
         : kind == CONSTRAINT_GRAMMAR   ? read_file(o->grammar, &text, err)
         : kind == CONSTRAINT_REGEX     ? buf_add(&text, o->regex, strlen(o->regex), err)
                                        : constraint_split_choice(o->choice, &text, err);
    if (rc == 0 && constraint_cache_get(gen->constraints, kind, buf_text(&text), text.len,
                                        &gen->serve.options.request.constraint, err) < 0)
        rc = err_prefix(err, "%s",
                        kind == CONSTRAINT_JSON_SCHEMA
                            ? is_schema(o->json_schema) ? "--json-schema" : o->json_schema
                        : kind == CONSTRAINT_GRAMMAR ? o->grammar
                        : kind == CONSTRAINT_REGEX   ? "--regex"
                                                     : "--choice");
    buf_release(&text);
    return rc;
}
