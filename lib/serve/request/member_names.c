/* Unknown members of requests: what was probably meant. */
#include <string.h>

#include "base/text_util.h"
#include "serve/request/request.h"

/* Edit distance of two field names, ignoring case; SIZE_MAX if too large for a typing error. */
static size_t name_distance(const char *key, const char *name)
{
    char small[64];
    const size_t len = strlen(key);
    if (len >= sizeof small)
        return SIZE_MAX;
    for (size_t i = 0; i <= len; i++)
        small[i] = (char)(key[i] >= 'A' && key[i] <= 'Z' ? key[i] - 'A' + 'a' : key[i]);
    const size_t distance = edit_distance(small, name);
    return distance <= size_min(len, strlen(name)) / 3 ? distance : SIZE_MAX;
}

int request_unknown(const char *key, const char *const *names, size_t n, struct err *err)
{
    const char *best = NULL;
    const struct excerpt found = excerpt_of(key, strlen(key));
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        const size_t distance = name_distance(key, names[i]);
        best = distance < least ? names[i] : best;
        least = size_min(least, distance);
    }
    if (best)
        return err_set(err,
                       "unknown member \"%s\"; did you mean \"%s\"? (--lenient ignores unknown ones)",
                       found.text, best);
    return err_set(err, "unknown member \"%s\" (--lenient ignores unknown ones)", found.text);
}
