/* Words of strangers in our sentences. */
#include "base/words.h"

#include <string.h>

#include "base/err.h"

struct excerpt excerpt_of(const char *text, size_t len)
{
    enum { MOST = sizeof(struct excerpt) - 3 };
    struct excerpt out = {{0}};
    size_t n = size_min(len, MOST);
    while (n < len && n && (text[n] & 0xc0) == 0x80) /* the next one continues a character */
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

size_t words_apart(const char *a, const char *b)
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
