/* Fields of requests ("members"): how their values are read. */
#ifndef BMC_MEMBERS_H
#define BMC_MEMBERS_H

#include "serve/request.h"

enum member_kind {
    ANY,
    PROMPT,
    BOOL,
    IDS,
    TURNS,
    OBJECTS,
    OBJECT,
    COUNT,
    SEED,
    LOGPROBS,
    REAL,
    FLAG,
    TEXTS,
    BREAKERS,
    BIASES,
    SCHEMA,
    GRAMMAR,
    REGEX,
    CHOICES,
    FORMAT,
    ORDER,
    ADAPTERS
};

struct member {
    const char *names[6]; /* canonical name, then aliases */
    enum member_kind kind;
    double min, max; /* limits of a number */
    size_t at;       /* offset of the value in struct request */
};

#define MEMBER_MANY SAMPLING_MANY /* no limit: exceeds all of jansson's integers */

/* Stop strings are looked for at each token, sequence breakers in each token of the vocabulary. */
enum { MEMBER_MOST_TEXTS = 1 << 14 };

struct given_member {
    const struct member *member;
    const char *name; /* name that the request uses */
    const json_t *value;
};

/* Writes the expected value of a member, as "a string". */
void member_describe(const struct member *member, char *text, size_t size);

/* Fails with the sentence that another value is expected. */
int member_refuse(const struct given_member *given, struct err *err) MUST_USE;

/* Check the value of a member and store it in the request; a function for each kind. */
typedef int member_setter(struct request *r, const struct given_member *given, struct err *err);
member_setter member_set_value, member_set_prompt, member_set_ids, member_set_objects, member_set_whole,
    member_set_seed, member_set_real, member_set_flag, member_set_stop, member_set_breakers,
    member_set_biases, member_set_order, member_set_logprobs, member_set_adapters;
member_setter member_set_schema, member_set_pattern, member_set_choices, member_set_format;

/* Checks that the value is a list of token ids. */
int member_check_ids(const struct given_member *given, struct err *err) MUST_USE;

#endif
