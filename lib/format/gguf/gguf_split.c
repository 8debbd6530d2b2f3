/* Opening all files of a split GGUF model. */
#include "format/gguf/gguf_split.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "base/number.h"

enum { PATH_SIZE = 4096 + 64, DIGITS = 5 };

/* Form of suffixes such as "-00001-of-00003.gguf"; # is a digit. */
static const char tail_form[] = "-#####-of-#####.gguf";

/* Number of files by the suffix of `path`, *stem the bytes before it; 0 without such a suffix. */
static size_t files_of_name(const char *path, size_t *stem)
{
    const size_t len = strlen(path), tail = sizeof tail_form - 1;
    char digits[DIGITS + 1];
    size_t n_files = 0;
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
    return parse_size(digits, &n_files) ? n_files : 0;
}

/* Fails if an earlier file has a tensor of the file opened last. */
static int check_names(const struct gguf_set *set, const char *path, struct err *err)
{
    for (size_t i = 0; i < set->file[set->n_files - 1].n_tensors; i++) {
        const char *name = set->file[set->n_files - 1].tensor[i].name;
        for (size_t before = 0; before + 1 < set->n_files; before++)
            if (gguf_find(&set->file[before], name))
                return err_set(err, "%s: tensor \"%s\" is also in another file of the model", path,
                               name);
    }
    return 0;
}

static int open_file(struct gguf_set *set, const char *path, size_t n_files, bool with_tensors,
                     struct err *err)
{
    const size_t index = set->n_files;
    if (n_files > 1 && !file_exists(path))
        return err_set(err,
                       "%s: missing: the model is split into %zu files, which must be in one folder",
                       path, n_files);
    if (gguf_open(&set->file[index], path, with_tensors, err) < 0)
        return -1;
    set->n_files++;
    const int64_t number = gguf_integer(&set->file[index], "split.no", 0);
    const int64_t count = gguf_integer(&set->file[index], "split.count", 1);
    if (n_files == 1 && count > 1)
        return err_set(
            err,
            "%s: is file %lld of %lld by its metadata, but not by its name; restore the original name "
            "(NAME-00001-of-00003.gguf)",
            path, (long long)number + 1, (long long)count);
    if (number != (int64_t)index || (count != (int64_t)n_files && !(count == 0 && n_files == 1)))
        return err_set(err,
                       "%s: is file %llu of %lld by its metadata, but %zu of %zu by its name; restore "
                       "the original name (NAME-00001-of-00003.gguf)",
                       path, (unsigned long long)number + 1, (long long)count, index + 1, n_files);
    return check_names(set, path, err);
}

static int open_files(struct gguf_set *set, const char *path, bool with_tensors, struct err *err)
{
    char name[PATH_SIZE];
    size_t stem = 0, n_files = files_of_name(path, &stem);
    if (n_files < 2)
        n_files = 1;
    set->file = calloc(n_files, sizeof *set->file);
    if (!set->file)
        return err_no_memory(err, "%s: %zu files", path, n_files);
    if (n_files == 1)
        return open_file(set, path, n_files, with_tensors, err);
    if (stem + sizeof tail_form > PATH_SIZE)
        return err_set(err, "%s: the file name is too long", path);
    for (size_t i = 0; i < n_files; i++) {
        snprintf(name, sizeof name, "%.*s-%05zu-of-%05zu.gguf", (int)stem, path, i + 1, n_files);
        if (open_file(set, name, n_files, with_tensors, err) < 0)
            return -1;
    }
    return 0;
}

int gguf_set_open(struct gguf_set *set, const char *path, bool with_tensors, struct err *err)
{
    *set = (struct gguf_set){0};
    if (open_files(set, path, with_tensors, err) == 0)
        return 0;
    gguf_set_release(set);
    return -1;
}

void gguf_set_release(struct gguf_set *set)
{
    for (size_t i = 0; i < set->n_files; i++)
        gguf_release(&set->file[i]);
    free(set->file);
    *set = (struct gguf_set){0};
}

const struct source_tensor *gguf_set_find(const struct gguf_set *set, const char *name)
{
    const struct source_tensor *tensor = NULL;
    for (size_t i = 0; i < set->n_files && !tensor; i++)
        tensor = gguf_find(&set->file[i], name);
    return tensor;
}
