/* Which type each tensor gets: the one for all, but for those that are to keep more. */
#include "model/types_wanted.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "base/few_bits.h"

const enum dtype types_made[] = {DTYPE_COUNT, DTYPE_F32, DTYPE_BF16, DTYPE_F16,
                                 DTYPE_Q8,    DTYPE_Q8C, DTYPE_Q4,   DTYPE_Q4S};

/* By its word in TYPES_MADE. */
static bool type_parse(const char *text, enum dtype *type)
{
    const char *word = TYPES_MADE;
    for (size_t i = 0;; i++) {
        const size_t len = strcspn(word, "|");
        if (strlen(text) == len && strncmp(word, text, len) == 0) {
            *type = types_made[i];
            return true;
        }
        if (!word[len])
            return false;
        word += len + 1;
    }
}

bool types_keep_parse(const char *text, char pattern[ROLE_NAME_SIZE], enum dtype *type)
{
    const char *sign = strrchr(text, '=');
    const size_t len = sign ? (size_t)(sign - text) : 0;
    if (!len || len >= ROLE_NAME_SIZE)
        return false;
    memcpy(pattern, text, len);
    pattern[len] = 0;
    return type_parse(sign + 1, type);
}

static bool is_head(const struct role *role, const struct config *config)
{
    return strcmp(role->name, config->tied_head ? "embed.weight" : "head.weight") == 0;
}

/* An embedding that is the head has both names. */
static bool matches(const char *pattern, const struct role *role, const char *name,
                    const struct config *config)
{
    return fnmatch(pattern, name, 0) == 0 ||
           (config->tied_head && is_head(role, config) && fnmatch(pattern, "head.weight", 0) == 0);
}

/* ---- patterns without a matrix ---- */

struct search {
    const char *pattern;
    size_t matrices, vectors; /* that match */
    size_t seen;              /* matrices */
    char some[128], last[ROLE_NAME_SIZE];
};

enum { SOME_NAMES = 3 };

static void search_role(struct search *s, const struct config *config, const struct role *role,
                        size_t layer)
{
    char name[ROLE_NAME_SIZE];
    const bool vector = role->in == DIM_NONE;
    role_tensor_name(role, layer, name);
    if (matches(s->pattern, role, name, config))
        *(vector ? &s->vectors : &s->matrices) += 1;
    if (vector)
        return;
    const size_t used = strlen(s->some);
    if (s->seen++ < SOME_NAMES)
        snprintf(s->some + used, sizeof s->some - used, "%s, ", name);
    memcpy(s->last, name, sizeof name);
}

static int check_pattern(const char *pattern, const struct config *config, struct err *err)
{
    struct search s = {.pattern = pattern};
    for (size_t i = 0; i < n_roles; i++)
        for (size_t layer = 0; layer < (role_in_layer(&roles[i]) ? config->layers : 1); layer++)
            if (role_wanted(&roles[i], config))
                search_role(&s, config, &roles[i], layer);
    if (s.matrices)
        return 0;
    if (s.vectors)
        return err_set(err, "--keep %s: matches vectors only, which are f32 always", pattern);
    return err_set(err,
                   "--keep %s: matches no tensor; among them are %s... %s (--info prints them all)",
                   pattern, s.some, s.last);
}

int types_check(const struct types_wanted *wanted, const struct config *config, struct err *err)
{
    char pattern[ROLE_NAME_SIZE];
    enum dtype type;
    for (size_t i = 0; i < wanted->n_keep; i++) {
        if (!types_keep_parse(wanted->keep[i], pattern, &type))
            return err_set(err, "--keep %s: PATTERN=TYPE is expected", wanted->keep[i]);
        if (check_pattern(pattern, config, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- choosing ---- */

/* What is only looked up costs no time, so that 4 bits save little there. */
static enum dtype usual_type(const struct types_wanted *wanted, const struct config *config,
                             const struct role *role)
{
    const bool four =
        dtype_few_bits(wanted->type) && wanted->type != DTYPE_COUNT && few_bits[wanted->type].bits == 4;
    if (wanted->keep_head && is_head(role, config))
        return DTYPE_COUNT;
    return four && role_looked_up(role, config) ? DTYPE_Q8 : wanted->type;
}

enum dtype types_choose(const struct types_wanted *wanted, const struct config *config,
                        const struct role *role, const char *name, enum dtype from)
{
    char pattern[ROLE_NAME_SIZE];
    enum dtype type;
    if (role->in == DIM_NONE)
        return DTYPE_F32;
    for (size_t i = wanted->n_keep; i > 0; i--)
        if (types_keep_parse(wanted->keep[i - 1], pattern, &type) &&
            matches(pattern, role, name, config))
            return type == DTYPE_COUNT ? from : type;
    type = usual_type(wanted, config, role);
    return type == DTYPE_COUNT ? from : type;
}
