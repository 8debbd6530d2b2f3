/* Shape files: sizes of published models. A config.json has them, too. */
#include <dirent.h>

#include "base/file.h"
#include "base/text_util.h"
#include "model/family/family.h"

enum { PATH_SIZE = 4096 + 300 };

/* Lists the names of a folder's files that end in `suffix`, without it, as "NAME, NAME", as far as
 * `text` has space. */
static void list_names(const char *folder, const char *suffix, char *text, size_t size)
{
    AUTO(free_auto) struct dirent **files = NULL;
    const int n = scandir(folder, &files, NULL, alphasort);
    size_t used = 0;
    *text = 0;
    for (int i = 0; i < n; i++) {
        const size_t len = strlen(files[i]->d_name) - strlen(suffix);
        if (text_ends(files[i]->d_name, suffix) && used + len + sizeof ", " <= size)
            used += (size_t)snprintf(text + used, size - used, "%s%.*s", used ? ", " : "", (int)len,
                                     files[i]->d_name);
        free(files[i]);
    }
}

/* Sets `best` to the name in `names` that is closest to `word` by edit distance, or whose part before
 * the first '-' is if `word` has none, as in "tinyllama-1.1b"; "" if none is close. */
static void nearest(const char *names, const char *word, char *best, size_t size)
{
    char name[64];
    size_t least = strlen(word) / 3 + 1;
    *best = 0;
    for (const char *at = names; *at;) {
        const size_t len = strcspn(at, ",");
        snprintf(name, sizeof name, "%.*s", (int)len, at);
        const size_t whole = edit_distance(word, name);
        char family[64];
        snprintf(family, sizeof family, "%.*s", (int)strcspn(name, "-"), name);
        const size_t distance =
            strchr(word, '-') ? whole : size_min(whole, edit_distance(word, family));
        if (distance < least) {
            least = distance;
            snprintf(best, size, "%s", name);
        }
        at += len + strspn(at + len, ", ");
    }
}

static int unknown_shape(const char *models_dir, const char *shape, const char *path, struct err *err)
{
    char folder[PATH_SIZE], known[300], all[4096], near[64];
    if (strcmp(shape, path) == 0)
        return err_set(err, "no shape \"%s\": there is no such file", shape);
    snprintf(folder, sizeof folder, "%s/shapes", models_dir);
    list_names(folder, ".shape", known, sizeof known);
    list_names(folder, ".shape", all, sizeof all);
    nearest(all, shape, near, sizeof near);
    return err_set(err, "no shape \"%.80s\"%s%s%s; known are %s%s; or give the path of a .shape file",
                   shape, *near ? " (did you mean \"" : "", near, *near ? "\"?)" : "",
                   *known ? known : "none",
                   strlen(all) > strlen(known) ? ", and others in the folder models.d/shapes" : "");
}

void shape_path(const char *models_dir, const char *shape, char *path, size_t size)
{
    if (strchr(shape, '/') || text_ends(shape, ".shape") || text_ends(shape, ".json"))
        snprintf(path, size, "%s", shape);
    else
        snprintf(path, size, "%s/shapes/%s.shape", models_dir, shape);
}

static int configure_by_json(const char *models_dir, const char *path, const json_t *json,
                             struct config *config, struct err *err)
{
    struct family family = {0};
    struct weight_source none = {0};
    const char *architecture =
        json_string_value(json_array_get(json_object_get(json, "architectures"), 0));
    snprintf(none.config_name, sizeof none.config_name, "%.4000s", path);
    if (!architecture)
        return err_set(err, "%s: \"architectures\" is missing, so the family is unknown", path);
    if (family_find(&family, models_dir, architecture, &none, err) < 0)
        return err_prefix(err, "%s", path);
    AUTO(json_auto) json_t *text = family_text_config(&family, json, err);
    const int rc = text ? family_configure(&family, text, &none, config, err) : -1;
    family_release(&family);
    return rc;
}

static int configure_by_file(const char *models_dir, const char *path, struct config *config,
                             struct err *err)
{
    struct file_map map;
    AUTO(json_auto) json_t *json = NULL;
    if (file_map(&map, path, err) < 0)
        return -1;
    const int rc = json_parse((const char *)map.data, map.size, path, &json, err);
    file_unmap(&map);
    return rc < 0 ? -1 : configure_by_json(models_dir, path, json, config, err);
}

int shape_configure(const char *models_dir, const char *shape, struct config *config, struct err *err)
{
    char path[PATH_SIZE];
    shape_path(models_dir, shape, path, sizeof path);
    if (!file_exists(path))
        return unknown_shape(models_dir, shape, path, err);
    if (text_ends(path, ".json"))
        return configure_by_file(models_dir, path, config, err);
    struct conf conf;
    if (conf_open(&conf, path, err) < 0)
        return -1;
    struct family family = {0};
    int rc = -1;
    const char *name = conf_get(&conf, "family");
    if (!name || strchr(name, '/')) {
        err_set(err, "%s: needs a line \"family NAME\"", path);
        goto out;
    }
    char family_path[PATH_SIZE];
    snprintf(family_path, sizeof family_path, "%s/families/%s.family", models_dir, name);
    if (family_open(&family, models_dir, family_path, err) < 0)
        goto out;
    rc = family_configure_shape(&family, &conf, config, err);
out:
    family_release(&family);
    conf_release(&conf);
    return rc;
}

int shape_configure_model(const char *models_dir, const char *shape, struct config *config,
                          struct err *err)
{
    if (shape_configure(models_dir, shape, config, err) < 0)
        return -1;
    if (!config_is_draft_head(config))
        return 0;
    config_close(config);
    return err_set(err,
                   "%s: is a draft head, which cannot run without its target model: write both "
                   "with bmc-convert --synth, and use bmc-spec",
                   shape);
}
