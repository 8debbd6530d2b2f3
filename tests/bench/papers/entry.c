/* Reads results of entries. */
#include "entry.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

const char *entry_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* Looks at one part, which is the `n`-th claim if it is one. */
static int read_part(struct entry *e, const json_t *part, struct err *err)
{
    const char *kind = entry_text(part, "kind");
    if (strcmp(kind, "claim") == 0) {
        e->claim[e->n_claims] = part;
        if (verdict_judge(part, &e->judged[e->n_claims++], err) < 0)
            return err_prefix(err, "\"%s\"", entry_text(part, "name"));
    } else if (strcmp(kind, "form") == 0)
        e->form = entry_text(part, "text");
    else if (strcmp(kind, "equal") == 0) {
        const json_t *values = json_object_get(part, "values");
        for (size_t i = 1; i < json_array_size(values); i++)
            if (!json_equal(json_array_get(values, 0), json_array_get(values, i)))
                e->differs = entry_text(part, "name");
    }
    return 0;
}

static int read_entry(struct entry *e, const char *path, struct err *err)
{
    struct file_map map;
    if (file_map(&map, path, err) < 0)
        return -1;
    int rc = json_parse((const char *)map.data, map.size, path, &e->root, err);
    file_unmap(&map);
    const json_t *parts = rc == 0 ? json_object_get(e->root, "parts") : NULL;
    const size_t n = json_array_size(parts);
    e->key = entry_text(e->root, "key");
    e->state = entry_text(e->root, "state");
    e->claim = calloc(n + 1, sizeof *e->claim);
    e->judged = calloc(n + 1, sizeof *e->judged);
    if (rc == 0 && (!e->claim || !e->judged))
        rc = err_no_memory(err, "an entry");
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = read_part(e, json_array_get(parts, i), err);
    e->outcome = verdict_of_all(e->judged, e->n_claims);
    return rc < 0 ? err_prefix(err, "%s", path) : 0;
}

static int is_result(const struct dirent *file)
{
    const size_t len = strlen(file->d_name);
    return len > 5 && strcmp(file->d_name + len - 5, ".json") == 0;
}

int entries_read(struct entries *entries, const char *dir, struct err *err)
{
    struct dirent **file;
    *entries = (struct entries){0};
    const int n = scandir(dir, &file, is_result, alphasort);
    if (n < 0)
        return err_errno(err, "%s", dir);
    int rc = 0;
    for (int i = 0; i < n; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", dir, file[i]->d_name);
        if (rc == 0)
            rc = mem_grow(&entries->entry, &entries->cap, entries->n, sizeof *entries->entry, err);
        if (rc == 0) {
            struct entry *e = &entries->entry[entries->n++];
            *e = (struct entry){0};
            rc = read_entry(e, path, err);
        }
        free(file[i]);
    }
    free(file);
    return rc;
}

void entries_close(struct entries *entries)
{
    for (size_t i = 0; i < entries->n; i++) {
        json_decref(entries->entry[i].root);
        free(entries->entry[i].claim);
        free(entries->entry[i].judged);
    }
    free(entries->entry);
    *entries = (struct entries){0};
}

const struct entry *entry_of_row(const struct entries *entries, const struct paper_row *row)
{
    char name[512];
    snprintf(name, sizeof name, "%s %s", row->cell[0], row->cell[1]);
    for (size_t i = 0; i < entries->n; i++) {
        const json_t *items = json_object_get(entries->entry[i].root, "items");
        for (size_t k = 0; k < json_array_size(items); k++) {
            const char *item = json_string_value(json_array_get(items, k));
            if (item && strcmp(item, name) == 0)
                return &entries->entry[i];
        }
    }
    return NULL;
}

const char *entry_verdict(const struct entry *e)
{
    if (strcmp(e->state, "done") != 0)
        return strcmp(e->state, "skipped") == 0 ? "not measured" : "failed";
    if (e->differs)
        return "failed";
    return e->form ? "form only" : verdict_name(e->outcome);
}

bool entry_contradicts(const struct entry *e, const char *index_verdict)
{
    const char *mine = entry_verdict(e);
    const bool no = strncmp(mine, "does not hold", 13) == 0, yes = strncmp(mine, "holds", 5) == 0;
    return (no && strncmp(index_verdict, "holds", 5) == 0) ||
           (yes && strncmp(index_verdict, "does not hold", 13) == 0);
}
