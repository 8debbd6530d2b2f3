/* String helpers. */
#include "base/text_util.h"

int text_order(const char *a, size_t a_len, const char *b, size_t b_len)
{
    const size_t len = size_min(a_len, b_len);
    const int order = len ? memcmp(a, b, len) : 0;
    return order ? order : (a_len > b_len) - (a_len < b_len);
}

bool text_ends(const char *text, const char *end)
{
    const size_t len = strlen(text), n = strlen(end);
    return len > n && strcmp(text + len - n, end) == 0;
}

bool text_ends_like(const char *text, const char *end)
{
    const size_t len = strlen(text), n = strlen(end);
    return len > n && strcasecmp(text + len - n, end) == 0;
}

size_t text_trimmed(const char *text, size_t len)
{
    while (len && strchr(" \t\r\n", text[len - 1]))
        len--;
    return len;
}

bool text_lists(const char *list, const char *word, size_t len)
{
    for (size_t n; *list; list += n + (list[n] != 0)) {
        n = strcspn(list, " ,");
        if (n == len && memcmp(list, word, len) == 0)
            return true;
    }
    return false;
}

size_t text_choice(const char *choices, const char *name)
{
    const size_t name_len = strlen(name);
    for (size_t i = 0; *choices; i++) {
        const size_t len = strcspn(choices, "|");
        if (len == name_len && memcmp(choices, name, len) == 0)
            return i;
        choices += len + (choices[len] == '|');
    }
    return SIZE_MAX;
}

void text_join_choices(const char *choices, const char *between, const char *before_last, char *text,
                       size_t size)
{
    size_t used = 0;
    text[0] = 0;
    for (const char *at = choices; *at && used < size;) {
        const size_t len = strcspn(at, "|");
        const char *glue = at == choices ? "" : strchr(at, '|') ? between : before_last;
        used += (size_t)snprintf(text + used, size - used, "%s%.*s", glue, (int)len, at);
        at += len + (at[len] == '|');
    }
}

int text_no_choice(const char *kind, const char *name, const char *choices, struct err *err)
{
    char known[256];
    text_join_choices(choices, ", ", " and ", known, sizeof known);
    return err_set(err, "there is no %s \"%.40s\"; there are %s", kind, name, known);
}

struct excerpt excerpt_of(const char *text, size_t len)
{
    enum { MOST = sizeof(struct excerpt) - 3 };
    struct excerpt out = {{0}};
    size_t n = size_min(len, MOST);
    while (n < len && n && (text[n] & 0xc0) == 0x80) /* back to the first byte of a character */
        n--;
    if (n)
        memcpy(out.text, text, n);
    for (size_t i = 0; i < n; i++)
        out.text[i] = out.text[i] ? out.text[i] : '?';
    if (n < len)
        memcpy(out.text + n, "..", 3);
    text_make_printable(out.text, strlen(out.text), "");
    return out;
}

size_t edit_distance(const char *a, const char *b)
{
    enum { MOST = 32 };
    const size_t n = strnlen(a, MOST), m = strnlen(b, MOST);
    size_t apart[MOST + 1][MOST + 1];
    for (size_t i = 0; i <= n; i++)
        for (size_t j = 0; j <= m; j++) {
            if (i == 0 || j == 0) {
                apart[i][j] = i + j;
                continue;
            }
            const size_t changed = apart[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            apart[i][j] = size_min(changed, 1 + size_min(apart[i - 1][j], apart[i][j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                apart[i][j] = size_min(apart[i][j], 1 + apart[i - 2][j - 2]);
        }
    return apart[n][m];
}
