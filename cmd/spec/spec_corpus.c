/* --lookup-corpus: reads a text file and tokenises it. */
#include <string.h>

#include "base/file.h"
#include "spec/speccmd.h"

enum { CORPUS_MIB = 16 };

static int check_text(const char *path, const struct file_map *map, struct err *err)
{
    if (map->size == 0)
        return err_set(err, "%s: is empty; --lookup-corpus needs a text file", path);
    if (map->size > (size_t)CORPUS_MIB << 20)
        return err_set(err, "%s: has %zu bytes; --lookup-corpus takes up to %d MiB: give a part of it",
                       path, map->size, CORPUS_MIB);
    const unsigned char *nul = memchr(map->data, 0, map->size);
    if (nul)
        return err_set(err, "%s: is not text: byte %zu is 0; --lookup-corpus needs a text file", path,
                       (size_t)(nul - map->data) + 1);
    return 0;
}

int spec_read_corpus(const struct model *model, const char *path, struct ids *ids, struct err *err)
{
    struct file_map map;
    if (file_map(&map, path, err) < 0)
        return -1;
    int rc = check_text(path, &map, err);
    if (rc == 0 &&
        tokenizer_encode_plain(model->tok, (const char *)map.data, map.size, false, ids, err) < 0)
        rc = err_prefix(err, "%s", path);
    file_unmap(&map);
    return rc;
}
