/* Token id lists and parsing them. */
#include "text/ids.h"

#include "base/number.h"

/* Separators of ids, besides commas; brackets are included to accept JSON lists. */
#define ID_BLANKS " \t\r\n[]"

int ids_add(struct ids *ids, uint32_t id, struct err *err)
{
    if (mem_grow(&ids->id, &ids->cap, ids->len, sizeof ids->id[0], err) < 0)
        return -1;
    ids->id[ids->len++] = id;
    return 0;
}

int ids_append(struct ids *ids, const struct ids *more, struct err *err)
{
    for (size_t i = 0; i < more->len; i++)
        if (ids_add(ids, more->id[i], err) < 0)
            return -1;
    return 0;
}

void ids_release(struct ids *ids)
{
    free(ids->id);
    *ids = (struct ids){0};
}

static int parse_id(const char *text, size_t len, uint32_t *id, struct err *err)
{
    char word[32];
    size_t number = SIZE_MAX;
    if (len < sizeof word) {
        memcpy(word, text, len);
        word[len] = 0;
    }
    if (len >= sizeof word || !parse_size(word, &number) || number > UINT32_MAX)
        return err_set(err,
                       "\"%.*s\" is not a token id; expected numbers separated by blanks or commas",
                       (int)size_min(len, 40), text);
    *id = (uint32_t)number;
    return 0;
}

static int empty_entry(size_t number, struct err *err)
{
    return err_set(err, "entry %zu is empty: expected ids separated by single commas", number);
}

int ids_parse(struct ids *ids, const char *text, struct err *err)
{
    bool comma = false;
    size_t n = 0, at_comma = 0; /* number of ids so far, and before the last comma */
    for (const char *at = text + strspn(text, ID_BLANKS); *at; at += strspn(at, ID_BLANKS)) {
        uint32_t id;
        if (*at == ',') {
            if (n == at_comma)
                return empty_entry(n + 1, err);
            comma = true;
            at_comma = n;
            at++;
            continue;
        }
        const size_t len = strcspn(at, ID_BLANKS ",");
        if (parse_id(at, len, &id, err) < 0 || ids_add(ids, id, err) < 0)
            return -1;
        comma = false;
        n++;
        at += len;
    }
    return comma ? empty_entry(n + 1, err) : 0;
}

/* border[i]: length of the longest proper suffix of ids [0, i] that is also a prefix. */
static void find_borders(const struct ids *ids, size_t *border)
{
    size_t n = 0;
    border[0] = 0;
    for (size_t i = 1; i < ids->len; i++) {
        while (n && ids->id[i] != ids->id[n])
            n = border[n - 1];
        border[i] = n += ids->id[i] == ids->id[n];
    }
}

int ids_overlap(const struct ids *last, const struct ids *first, size_t *n, struct err *err)
{
    *n = 0;
    if (first->len == 0)
        return 0;
    AUTO(free_auto) size_t *border = mem_alloc(first->len, sizeof *border);
    if (!border)
        return err_no_memory(err, "%zu ids", first->len);
    find_borders(first, border);
    for (size_t i = last->len - size_min(last->len, first->len); i < last->len; i++) {
        while (*n && last->id[i] != first->id[*n])
            *n = border[*n - 1];
        *n += last->id[i] == first->id[*n];
    }
    return 0;
}
