/* Parses a request, a line of JSON. Needs no model, so that fuzzing can try any bytes.
 *
 * The table in request.c drives parsing, suggestions for unknown members and the test of the man
 * page. To add a member, add a row there and one to the table of bmc-gen(1). */
#ifndef BMC_REQUEST_H
#define BMC_REQUEST_H

#include "base/json.h"
#include "decode/gen_types.h"
#include "text/chat/chat.h"

struct request {
    json_t *root;                /* the object, which owns the values below; NULL: not given */
    const json_t *id, *from;     /* any value */
    const json_t *text, *ids;    /* the prompt as a string or list of token ids */
    const json_t *messages;      /* the prompt as turns of a conversation */
    const json_t *parse_special; /* boolean: parse special tokens spelled in the prompt */
    struct gen_request gen;      /* except gen.ids, which the caller sets */
    struct sampler_options sampling;
    char **stop;             /* owned storage of gen.stop, or NULL */
    struct logit_bias *bias; /* owned storage of sampling.bias, or NULL */
};

/* Parses a line: an object of known members, each under only one of its names. `lenient` ignores
 * unknown members. After an error `id` is set if found, and request_close() must be called. */
int request_open(struct request *request, const char *line, size_t len, bool lenient,
                 struct err *err) MUST_USE;

/* Applies the request's members to the defaults in `gen` and `sampling`. Afterwards gen.sampling
 * points into the struct, which must not move. */
int request_apply(struct request *request, struct err *err) MUST_USE;

/* The i-th message; its text is borrowed. */
struct chat_turn request_turn(const struct request *request, size_t i);

/* Appends the token ids of `ids`. */
int request_ids(const struct request *request, struct ids *ids, struct err *err) MUST_USE;

/* An id as JSON text, with all digits of numbers; the caller frees it. NULL with an error. */
char *request_format_id(const json_t *id, struct err *err) MUST_USE;

void request_close(struct request *request);

/* Whether to parse special tokens spelled in the prompt; `otherwise` if it does not say. */
static inline bool request_parses_special(const struct request *request, bool otherwise)
{
    return request->parse_special ? json_is_true(request->parse_special) : otherwise;
}

/* Helpers for other kinds of lines: parse an object, which the caller releases (NULL on error);
 * append the token ids in the value of "ids". */
int request_line(const char *line, size_t len, json_t **root, struct err *err) MUST_USE;
int request_ids_of(const json_t *value, struct ids *ids, struct err *err) MUST_USE;

/* Sets the error for an unknown member: suggests the most similar of `names`, or the equivalent of
 * another server's member. */
int request_unknown(const char *key, const char *const *names, size_t n, struct err *err) MUST_USE;

/* For the test of the man page: names and expected value of member n. False: no more. */
struct member_doc {
    const char *const *names; /* canonical name, aliases, NULL */
    char expected[80];
};
bool request_member(size_t n, struct member_doc *doc);

#endif
