/* What kind of file something is. */
#include "format/sniff.h"

#include <string.h>

#include "base/file.h"
#include "format/bmclayout.h"
#include "format/kvfile.h"

enum { ST_HEAD = 8, ST_MAX_HEADER = 100 << 20 };

static bool starts(const struct file_map *map, const char *text)
{
    const size_t len = strlen(text);
    return map->size >= len && memcmp(map->data, text, len) == 0;
}

/* A line that begins so, among the first ones. */
static bool has_line(const struct file_map *map, const char *key)
{
    enum { FIRST = 1024 };
    const char *at = (const char *)map->data, *end = at + size_min(map->size, FIRST);
    while (at && at < end) {
        const size_t len = strlen(key);
        if ((size_t)(end - at) >= len && memcmp(at, key, len) == 0)
            return true;
        at = memchr(at, '\n', (size_t)(end - at));
        at = at ? at + 1 : NULL;
    }
    return false;
}

static bool is_model(const struct file_map *map) { return starts(map, BMC_MAGIC); }

static bool is_snapshot(const struct file_map *map) { return starts(map, KVFILE_MAGIC); }

/* Both are texts of "key value" lines. */
static bool is_profile(const struct file_map *map) { return has_line(map, "bmc_profile "); }

static bool is_acceptance(const struct file_map *map)
{
    return starts(map, "target ") && has_line(map, "draft ");
}

/* The length of a JSON object, then the object. */
static bool is_safetensors(const struct file_map *map)
{
    uint64_t header;
    if (map->size <= ST_HEAD || map->data[ST_HEAD] != '{')
        return false;
    memcpy(&header, map->data, sizeof header);
    return header >= 2 && header <= ST_MAX_HEADER;
}

static bool is_gguf(const struct file_map *map) { return starts(map, "GGUF"); }

static const struct {
    const char *name;
    bool (*is)(const struct file_map *map);
} kinds[FILE_KINDS] = {
    [KIND_OTHER] = {"file", NULL},
    [KIND_MODEL] = {"model file", is_model},
    [KIND_SNAPSHOT] = {"snapshot", is_snapshot},
    [KIND_PROFILE] = {"tuned profile", is_profile},
    [KIND_ACCEPTANCE] = {"file of measured acceptance", is_acceptance},
    [KIND_SAFETENSORS] = {"safetensors file", is_safetensors},
    [KIND_GGUF] = {"GGUF file", is_gguf},
};

enum file_kind file_sniff(const char *path)
{
    struct file_map map;
    struct err ignored;
    int kind = FILE_KINDS;
    if (file_map(&map, path, &ignored) < 0)
        return KIND_OTHER;
    while (--kind > KIND_OTHER)
        if (map.size && kinds[kind].is(&map))
            break;
    file_unmap(&map);
    return (enum file_kind)kind;
}

const char *file_kind_name(enum file_kind kind) { return kinds[kind].name; }
