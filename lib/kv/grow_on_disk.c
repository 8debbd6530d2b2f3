/* What the option of a cache on disk says: "ram=1G,dir=/var/tmp,group=auto", each of them or none. */
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "kv/kv_policy.h"

enum { STEP_ROWS = 64 };

static bool parse_ram(struct spill_place *place, const char *text)
{
    return parse_bytes(text, &place->ram);
}

static bool parse_dir(struct spill_place *place, const char *text)
{
    memcpy(place->dir, text, strlen(text) + 1); /* no longer than what it is a part of */
    return *text;
}

static bool parse_group(struct spill_place *place, const char *text)
{
    place->group = 0;
    return strcmp(text, "auto") == 0 || (parse_size(text, &place->group) && place->group);
}

static const struct {
    const char *key;
    bool (*parse)(struct spill_place *place, const char *text);
} keys[] = {{"ram=", parse_ram}, {"dir=", parse_dir}, {"group=", parse_group}};

static bool parse_part(struct kv_spec *spec, const char *part)
{
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (strncmp(part, keys[i].key, strlen(keys[i].key)) == 0)
            return keys[i].parse(&spec->spill, part + strlen(keys[i].key));
    return false;
}

static int parse_place(struct kv_spec *spec, const char *text, const char *parameter, struct err *err)
{
    if (kv_each_part(spec, parameter, parse_part))
        return 0;
    return err_set(
        err,
        "cache policy \"%.80s\": ram=BYTES, as 512M or 1G, dir=FOLDER of less than %d characters, and "
        "group=HEADS, or group=auto, are expected after the colon, with commas between them",
        text, SPILL_DIR_SIZE - (int)strlen("dir="));
}

static size_t step_rows(struct kv *kv, const struct kv_spec *spec)
{
    struct spill_place *place = &kv->spec.spill;
    (void)spec;
    if (!place->ram)
        place->ram = (size_t)1 << 30;
    if (!*place->dir)
        strcpy(place->dir, "/var/tmp");
    return size_min(STEP_ROWS, kv->setup.shape.max_rows);
}

const struct kv_growth kv_grow_on_disk = {parse_place, step_rows, NULL, false};
