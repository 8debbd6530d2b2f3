/* Reading what is done to a tensor of a source. */
#include "model/recipe.h"

#include "base/number.h"

#include <stdio.h>
#include <string.h>

struct reader {
    char *const *word;
    size_t n;
};

static bool take(struct reader *r, const char *word)
{
    if (r->n == 0 || strcmp(*r->word, word) != 0)
        return false;
    r->word++;
    r->n--;
    return true;
}

/* "k" beside "layer.q.weight" is "layer.k.weight". */
static const struct role *sibling(const struct role *role, const char *part)
{
    const char *suffix = strrchr(role->name, '.');
    const char *prefix = role_in_layer(role) ? "layer." : "";
    char name[ROLE_NAME_SIZE];
    const int len = snprintf(name, sizeof name, "%s%s%s", prefix, part, suffix);
    return len < ROLE_NAME_SIZE ? role_find(name) : NULL;
}

static bool has_part(const struct recipe *recipe, const struct role *role)
{
    for (size_t i = 0; i < recipe->n_parts; i++)
        if (recipe->parts[i] == role)
            return true;
    return false;
}

/* "q of q,k,v": the names of roles beside this one, which is the first. */
static bool read_part(struct reader *r, struct recipe *recipe, const struct role *role)
{
    if (r->n < 3 || sibling(role, r->word[0]) != role || strcmp(r->word[1], "of") != 0)
        return false;
    for (char *rest = r->word[2], *name; (name = strsep(&rest, ","));) {
        const struct role *part = sibling(role, name);
        if (!part || part->in != role->in || has_part(recipe, part) || recipe->n_parts == RECIPE_PARTS)
            return false;
        recipe->parts[recipe->n_parts++] = part;
    }
    r->word += 3;
    r->n -= 3;
    return recipe->n_parts > 1 && has_part(recipe, role);
}

static bool of_heads(const struct role *role) { return role->out == DIM_Q || role->out == DIM_KV; }

static bool rotates(const struct role *role) { return of_heads(role) && !strstr(role->name, ".v."); }

/* "turns 4" */
static bool read_turns(struct reader *r, struct recipe *recipe)
{
    if (r->n == 0 || !parse_size(*r->word, &recipe->turns) || recipe->turns == 0)
        return false;
    r->word++;
    r->n--;
    return true;
}

bool recipe_parse(struct recipe *recipe, const struct role *role, char *const *word, size_t n)
{
    struct reader r = {word, n};
    *recipe = (struct recipe){.transposed = take(&r, "transposed")};
    if (recipe->transposed && role->in == DIM_NONE)
        return false;
    if (take(&r, "part") && !read_part(&r, recipe, role))
        return false;
    recipe->by_head = recipe->n_parts && take(&r, "by_head");
    if (recipe->n_parts && !recipe->by_head && take(&r, "turns") && !read_turns(&r, recipe))
        return false;
    for (size_t i = 0; recipe->by_head && i < recipe->n_parts; i++)
        if (!of_heads(recipe->parts[i]))
            return false;
    recipe->interleaved = rotates(role) && take(&r, "interleaved");
    recipe->plus_one = role->fill == FILL_ONE && take(&r, "plus_one");
    return r.n == 0;
}
