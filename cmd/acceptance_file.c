/* Files of a drafter's measured acceptance rates. */
#include "acceptance_file.h"

#include "tuned.h"
#include "userdir.h"

enum { NAME_BYTES = 80, SHORT_ID = 8 };

static void draft_id(const struct acceptance_pair *pair, size_t bytes, char text[2 * HASH_BYTES + 1])
{
    if (pair->draft)
        hash_hex(pair->draft, bytes, text);
    else
        strcpy(text, pair->drafter);
}

const char *acceptance_mode(const struct acceptance_pair *pair)
{
    return pair->greedy ? "greedy" : "sampling";
}

bool acceptance_path(const struct acceptance_pair *pair, char *path, size_t size)
{
    char target[2 * SHORT_ID + 1], draft[2 * HASH_BYTES + 1], name[NAME_BYTES];
    hash_hex(pair->target, SHORT_ID, target);
    draft_id(pair, SHORT_ID, draft);
    snprintf(name, sizeof name, "acceptance-%s-%.16s-%s", target, draft, acceptance_mode(pair));
    return userdir_path(USER_CONFIG, name, path, size);
}

void acceptance_ids(const struct acceptance_pair *pair, char target[2 * HASH_BYTES + 1],
                    char draft[2 * HASH_BYTES + 1])
{
    hash_hex(pair->target, HASH_BYTES, target);
    draft_id(pair, HASH_BYTES, draft);
}

int acceptance_read_pair(struct acceptance *a, const struct acceptance_pair *pair, const char *path,
                         struct err *err)
{
    char target[2 * HASH_BYTES + 1], draft[2 * HASH_BYTES + 1];
    if (acceptance_read(a, path, err) < 0)
        return -1;
    acceptance_ids(pair, target, draft);
    if (strcmp(a->target, target) != 0)
        return err_set(err, "%s: was recorded for another model; record it with --record-acceptance",
                       path);
    if (strcmp(a->draft, draft) != 0)
        return err_set(err, "%s: was recorded with another drafter; record it with --record-acceptance",
                       path);
    return 0;
}
