/* Parameters of policy headwise: "ram=1G,dir=/var/tmp,group=auto", all optional. */
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "kv/offload/offload_heads.h"

enum { CAPACITY_STEP = 64 }; /* rows per growth event */

static bool parse_ram(struct kv_spec *spec, const char *value)
{
    return parse_bytes(value, &spec->offload.ram);
}

static bool parse_dir(struct kv_spec *spec, const char *value)
{
    memcpy(spec->offload.dir, value, strlen(value) + 1); /* kv_parse_params() checks the length */
    return *value;
}

static bool parse_group(struct kv_spec *spec, const char *value)
{
    size_t *group = &spec->offload.group;
    *group = 0;
    return strcmp(value, "auto") == 0 || (parse_size(value, group) && *group);
}

static int parse_options(struct kv_spec *spec, const char *text, const char *parameter, struct err *err)
{
    static const struct kv_param params[] = {
        {"ram=", parse_ram}, {"dir=", parse_dir}, {"group=", parse_group}};
    char expected[192];
    snprintf(expected, sizeof expected,
             "ram=BYTES, as 512M or 1G, dir=FOLDER of less than %d characters, and group=HEADS, or "
             "group=auto, are expected after the colon, with commas between them",
             OFFLOAD_DIR_SIZE - (int)strlen("dir="));
    return kv_parse_params(spec, text, parameter, params, ARRAY_LEN(params), expected, err);
}

/* Returns r, the rows per growth event; sets the defaults of ram= and dir=. */
static size_t capacity_step(struct kv *kv, const struct kv_spec *spec)
{
    struct offload_options *options = &kv->spec.offload;
    (void)spec;
    if (!options->ram)
        options->ram = (size_t)1 << 30;
    if (!*options->dir)
        strcpy(options->dir, "/var/tmp");
    return size_min(CAPACITY_STEP, kv->setup.shape.max_rows);
}

const struct kv_growth kv_growth_offload = {
    .parse = parse_options, .rows = capacity_step, .share = offload_share};
