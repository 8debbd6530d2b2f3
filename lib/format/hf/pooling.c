/* Reading sentence-transformers' modules.json and 1_Pooling/config.json. */
#include "format/hf/pooling.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/text_util.h"

enum { PATH_SIZE = 4096 + 512 };

/* How a text's embedding is made: the member of the pooling module's configuration that is true, and its name in
 * the newer form, "pooling_mode": NAME. */
static const struct mode {
    const char *member, *name, *pooling; /* `pooling` NULL: not supported */
} modes[] = {
    {"pooling_mode_mean_tokens", "mean", "mean"},
    {"pooling_mode_lasttoken", "lasttoken", "last"},
    {"pooling_mode_cls_token", "cls", "cls"},
    {"pooling_mode_max_tokens", "max", NULL},
    {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", NULL},
    {"pooling_mode_weightedmean_tokens", "weightedmean", NULL},
};

/* Parses a file of the folder; *json is NULL if there is none. */
static int read_json(json_t **json, const char *folder, const char *name, struct err *err)
{
    char path[PATH_SIZE];
    struct file_map map;
    *json = NULL;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path || !file_exists(path))
        return 0;
    if (file_map(&map, path, err) < 0)
        return -1;
    const int rc = json_parse((const char *)map.data, map.size, path, json, err);
    file_unmap(&map);
    return rc;
}

/* What a pooling module does: a mode's pooling, or NULL and in `what` what is not supported. */
static const char *pooling_of(const json_t *config, const char **what)
{
    const char *name = json_string_value(json_object_get(config, "pooling_mode"));
    const struct mode *found = NULL;
    for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
        if (!(name ? strcmp(name, modes[i].name) == 0
                   : json_is_true(json_object_get(config, modes[i].member))))
            continue;
        *what = found ? "more than one mode of pooling" : modes[i].name;
        if (found)
            return NULL;
        found = &modes[i];
    }
    if (!found)
        *what = "its mode of pooling";
    return found ? found->pooling : NULL;
}

/* Modules that change nothing that is not done anyway. */
static bool is_known(const char *type)
{
    return text_ends(type, ".Transformer") || text_ends(type, ".Pooling") ||
           text_ends(type, ".Normalize");
}

/* The name of the folder of the pooling module; also of one that is not listed. */
static const char *find_pooling(const json_t *modules, bool *normalize, const char **other)
{
    const char *folder = modules ? NULL : "1_Pooling";
    const json_t *module;
    size_t i;
    *normalize = !modules;
    json_array_foreach(modules, i, module)
    {
        const char *type = json_string_value(json_object_get(module, "type"));
        if (!type || !is_known(type))
            *other = type ? type : "a module without type";
        else if (text_ends(type, ".Pooling"))
            folder = json_string_value(json_object_get(module, "path"));
        else
            *normalize |= text_ends(type, ".Normalize");
    }
    return folder;
}

/* Adds the names of the prompts of config_sentence_transformers.json. */
static int put_prompts(json_t *json, const char *path, struct err *err)
{
    json_t *config = NULL, *prompts;
    struct buf names = {0};
    int rc = read_json(&config, path, "config_sentence_transformers.json", err);
    prompts = json_object_get(config, "prompts");
    for (void *at = json_object_iter(prompts); at && rc == 0; at = json_object_iter_next(prompts, at)) {
        const json_t *text = json_object_iter_value(at);
        if (json_string_length(text))
            rc = buf_addf(&names, err, "%s%s", names.len ? ", " : "", json_object_iter_key(at));
    }
    if (rc == 0 && names.len)
        rc = json_put(json, "prompts", json_text(names.data, names.len), err);
    buf_release(&names);
    json_decref(config);
    return rc;
}

static int describe(json_t **json, const char *path, const json_t *modules, struct err *err)
{
    json_t *config = NULL;
    bool normalize;
    const char *other = NULL, *folder = find_pooling(modules, &normalize, &other), *what = NULL;
    char name[256];
    if (!folder)
        return 0;
    snprintf(name, sizeof name, "%.200s/config.json", folder);
    if (!strchr(folder, '/') && strcmp(folder, "..") != 0 && read_json(&config, path, name, err) < 0)
        return -1;
    if (!config && !modules)
        return 0;
    const char *pooling = config ? pooling_of(config, &what) : NULL;
    if (!config)
        what = "its pooling module cannot be read";
    json_decref(config);
    json_t *made = json_pack("{s:s, s:b, s:s*}", "pooling", pooling && !other ? pooling : "unsupported",
                             "normalize", normalize, "unsupported",
                             other     ? other
                             : pooling ? NULL
                                       : what);
    *json = json_or_null(made, made ? put_prompts(made, path, err) : 0, err);
    return *json ? 0 : -1;
}

int pooling_read(json_t **json, const char *path, struct err *err)
{
    json_t *modules = NULL;
    *json = NULL;
    if (read_json(&modules, path, "modules.json", err) < 0)
        return -1;
    const int rc = describe(json, path, modules, err);
    json_decref(modules);
    return rc;
}
