/* String helpers. */
#include "base/text_util.h"

#include <string.h>

#include "base/err.h"

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

bool text_lists(const char *list, const char *word, size_t len)
{
    for (size_t n; *list; list += n + (list[n] == ' ')) {
        n = strcspn(list, " ");
        if (n == len && memcmp(list, word, len) == 0)
            return true;
    }
    return false;
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
