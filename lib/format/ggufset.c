/* Opening all parts of a GGUF model. */
#include "format/ggufset.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "base/number.h"

enum { PATH_SIZE = 4096 + 64, DIGITS = 5 };

/* "-00001-of-00003.gguf" at the end of a name. */
static const char tail_form[] = "-#####-of-#####.gguf";

/* Reads the numbers of a name that ends so; 0: it does not. */
static size_t parts_of_name(const char *path, size_t *stem)
{
    const size_t len = strlen(path), tail = sizeof tail_form - 1;
    char digits[DIGITS + 1];
    size_t parts = 0;
    if (len < tail)
        return 0;
    *stem = len - tail;
    for (size_t i = 0; i < tail; i++) {
        const char c = path[*stem + i];
        if (tail_form[i] == '#' ? c < '0' || c > '9' : c != tail_form[i])
            return 0;
    }
    memcpy(digits, path + len - tail + 10, DIGITS);
    digits[DIGITS] = 0;
    return parse_size(digits, &parts) ? parts : 0;
}

/* A name that two parts have could mean either tensor. */
static int check_names(const struct gguf_set *set, const char *path, struct err *err)
{
    for (size_t i = 0; i < set->part[set->n_parts - 1].n_tensors; i++) {
        const char *name = set->part[set->n_parts - 1].tensor[i].name;
        for (size_t before = 0; before + 1 < set->n_parts; before++)
            if (gguf_find(&set->part[before], name))
                return err_set(err, "%s: tensor \"%s\" is in another part, too", path, name);
    }
    return 0;
}

static int open_part(struct gguf_set *set, const char *path, size_t parts, bool with_tensors,
                     struct err *err)
{
    const size_t index = set->n_parts;
    if (parts > 1 && !file_exists(path))
        return err_set(
            err, "%s: is missing: the model is split into %zu files, which belong into one folder",
            path, parts);
    if (gguf_open(&set->part[index], path, with_tensors, err) < 0)
        return -1;
    set->n_parts++;
    const int64_t number = gguf_integer(&set->part[index], "split.no", 0);
    const int64_t count = gguf_integer(&set->part[index], "split.count", 1);
    if (parts == 1 && count > 1)
        return err_set(
            err,
            "%s: says that it is file %lld of %lld, which its name does not say: split files "
            "keep their names (NAME-00001-of-00003.gguf)",
            path, (long long)number + 1, (long long)count);
    if (number != (int64_t)index || (count != (int64_t)parts && !(count == 0 && parts == 1)))
        return err_set(err,
                       "%s: says that it is file %llu of %lld, its name that it is %zu of %zu: split "
                       "files keep their "
                       "names (NAME-00001-of-00003.gguf)",
                       path, (unsigned long long)number + 1, (long long)count, index + 1, parts);
    return check_names(set, path, err);
}

static int open_parts(struct gguf_set *set, const char *path, bool with_tensors, struct err *err)
{
    char name[PATH_SIZE];
    size_t stem = 0, parts = parts_of_name(path, &stem);
    if (parts < 2)
        parts = 1;
    set->part = calloc(parts, sizeof *set->part);
    if (!set->part)
        return err_set(err, "%s: out of memory for %zu files", path, parts);
    if (parts == 1)
        return open_part(set, path, parts, with_tensors, err);
    if (stem + sizeof tail_form > PATH_SIZE)
        return err_set(err, "%s: is too long a name", path);
    for (size_t i = 0; i < parts; i++) {
        snprintf(name, sizeof name, "%.*s-%05zu-of-%05zu.gguf", (int)stem, path, i + 1, parts);
        if (open_part(set, name, parts, with_tensors, err) < 0)
            return -1;
    }
    return 0;
}

int gguf_set_open(struct gguf_set *set, const char *path, bool with_tensors, struct err *err)
{
    *set = (struct gguf_set){0};
    if (open_parts(set, path, with_tensors, err) == 0)
        return 0;
    gguf_set_release(set);
    return -1;
}

void gguf_set_release(struct gguf_set *set)
{
    for (size_t i = 0; i < set->n_parts; i++)
        gguf_release(&set->part[i]);
    free(set->part);
    *set = (struct gguf_set){0};
}

const struct source_tensor *gguf_set_find(const struct gguf_set *set, const char *name)
{
    const struct source_tensor *tensor = NULL;
    for (size_t i = 0; i < set->n_parts && !tensor; i++)
        tensor = gguf_find(&set->part[i], name);
    return tensor;
}
