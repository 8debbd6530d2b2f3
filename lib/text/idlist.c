/* Token ids from a text. */
#include <string.h>

#include "base/conf.h"
#include "text/tokenizer.h"

/* Commas and brackets, too, so that a JSON list can be pasted. */
#define ID_BLANKS " \t\r\n,[]"

int ids_parse(struct ids *ids, const char *text, struct err *err)
{
    char word[32];
    for (const char *at = text + strspn(text, ID_BLANKS); *at; at += strspn(at, ID_BLANKS)) {
        const size_t len = strcspn(at, ID_BLANKS);
        size_t id = SIZE_MAX;
        if (len < sizeof word) {
            memcpy(word, at, len);
            word[len] = 0;
        }
        if (len >= sizeof word || !parse_size(word, &id) || id > UINT32_MAX)
            return err_set(
                err, "\"%.*s\" is no token id; ids are whole numbers separated by blanks or commas",
                (int)size_min(len, 40), at);
        if (ids_add(ids, (uint32_t)id, err) < 0)
            return -1;
        at += len;
    }
    return 0;
}
