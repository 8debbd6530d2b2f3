/* What the option of a cache on disk says: "ram=1G,dir=/var/tmp,group=auto", each of them or none. */
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "kv/kv_policy.h"

enum { STEP_ROWS = 64 };

static bool parse_ram(struct kv_spec *spec, const char *value)
{
    return parse_bytes(value, &spec->spill.ram);
}

static bool parse_dir(struct kv_spec *spec, const char *value)
{
    memcpy(spec->spill.dir, value, strlen(value) + 1); /* no longer than what it is a part of */
    return *value;
}

static bool parse_group(struct kv_spec *spec, const char *value)
{
    size_t *group = &spec->spill.group;
    *group = 0;
    return strcmp(value, "auto") == 0 || (parse_size(value, group) && *group);
}

static int parse_place(struct kv_spec *spec, const char *text, const char *parameter, struct err *err)
{
    static const struct kv_key keys[] = {
        {"ram=", parse_ram}, {"dir=", parse_dir}, {"group=", parse_group}};
    char expected[192];
    snprintf(expected, sizeof expected,
             "ram=BYTES, as 512M or 1G, dir=FOLDER of less than %d characters, and group=HEADS, or "
             "group=auto, are expected after the colon, with commas between them",
             SPILL_DIR_SIZE - (int)strlen("dir="));
    return kv_take_parts(spec, text, parameter, keys, ARRAY_LEN(keys), expected, err);
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
