/* bmc-prof prefix-cache: the use of a folder of bmc-gen --prefix-cache, by all processes so far. */
#include <string.h>

#include "format/kvblock/kvblock_folder.h"
#include "prof/prof.h"

int prof_prefix_cache(const struct prof_options *o, struct err *err)
{
    struct kvblock_usage usage = {0};
    struct kvblock_counts n = {0};
    json_t *row = json_object(), *rows = json_array();
    int rc = kvblock_folder_describe(o->file[0], &usage, &n, err);
    const struct {
        const char *name;
        uint64_t value;
    } counts[] = {{"blocks", usage.blocks},
                  {"block_bytes", usage.bytes},
                  {"lookups", n.lookups},
                  {"lookup_tokens", n.lookup_tokens},
                  {"hit_tokens", n.hit_tokens},
                  {"stored_blocks", n.stored_blocks},
                  {"evicted_blocks", n.evicted_blocks},
                  {"dropped_blocks", n.dropped_blocks}};
    if (rc == 0)
        rc = json_put(row, "folder", json_text(o->file[0], strlen(o->file[0])), err);
    for (size_t i = 0; i < ARRAY_LEN(counts) && rc == 0; i++)
        rc = json_put(row, counts[i].name, json_integer((json_int_t)counts[i].value), err);
    if (rc == 0)
        rc = json_put(row, "hit_rate",
                      n.lookup_tokens ? json_real((double)n.hit_tokens / (double)n.lookup_tokens)
                                      : json_null(),
                      err);
    if (rc == 0)
        rc = json_push(rows, json_incref(row), err);
    if (rc == 0)
        rc = prof_print_rows(
            NULL, o, rows,
            "blocks block_bytes lookups lookup_tokens hit_tokens hit_rate stored_blocks "
            "evicted_blocks dropped_blocks",
            err);
    json_decref(row);
    json_decref(rows);
    return rc;
}
