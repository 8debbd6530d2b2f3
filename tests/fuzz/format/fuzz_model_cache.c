/* The cache of converted models: whatever names and files its folder has, lists and clearing agree, only files that are
 * named as models go, and a source finds nothing but a regular file of its own key. The input has a file in each line,
 * a character for its kind and its name, in which "@" is the key of the source. */
#include "model/convert/model_cache.c"
#include "tests/fuzz/support/scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { NAME = 300, KEY = 17 };

/* A GGUF file without tensors, which is identified but cannot be converted. */
static const uint8_t source[24] = {'G', 'G', 'U', 'F', 3};

static void path_of(char path[], size_t size, const char *name)
{
    snprintf(path, size, "%s/%s", scratch_folder, name);
}

/* Makes a file of the kind that a letter says. */
static void make_file(char kind, const char *name)
{
    char in_folder[NAME + 16], path[NAME + 512];
    snprintf(in_folder, sizeof in_folder, "bmc/%s", name);
    path_of(path, sizeof path, in_folder);
    if (kind == 'd') {
        scratch_write(in_folder, NULL, 0);
    } else if (kind == 'l') {
        (void)!symlink("../kept", path);
    } else if (kind == 'p') {
        (void)!mkfifo(path, 0600);
    } else {
        scratch_write(in_folder, source, (unsigned char)kind % sizeof source);
        (void)!chmod(path, kind == 'w' ? 0666 : 0600);
    }
}

/* Copies a line's name, with the key for "@". */
static void expand(char name[NAME], const char *line, size_t len, const char *key)
{
    size_t n = 0;
    for (size_t i = 0; i < len && n + KEY < NAME; i++) {
        const bool at = line[i] == '@';
        memcpy(name + n, at ? key : line + i, at ? KEY - 1 : 1);
        n += at ? KEY - 1 : 1;
    }
    name[n] = 0;
}

/* Fails unless a model that was found is a regular file in the folder, with the key in its name. */
static void check_found(const struct cached_model *model, const char *key)
{
    struct stat st;
    const char *name = strrchr(model->path, '/');
    if (!name || !strstr(name, key) || lstat(model->path, &st) < 0 || !S_ISREG(st.st_mode) ||
        st.st_mode & 022)
        abort();
}

static void check_list(const char *folder, size_t expected)
{
    struct model_cache_entry *entry;
    struct err err;
    size_t n;
    if (model_cache_list(folder, &entry, &n, &err) < 0 || (expected != SIZE_MAX && n != expected))
        abort();
    for (size_t i = 0; i < n; i++)
        if (!strstr(entry[i].name, ".bmc") || strchr(entry[i].name, '/'))
            abort();
    free(entry);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char folder[512], path[512], key[KEY], name[NAME];
    struct cached_model model;
    struct err err;
    size_t removed, bytes, left;
    uint64_t number;
    scratch_begin();
    scratch_write("kept", source, sizeof source);
    scratch_write("source.gguf", source, sizeof source);
    scratch_write("bmc", NULL, 0);
    path_of(folder, sizeof folder, "bmc");
    path_of(path, sizeof path, "source.gguf");
    const struct model_cache cache = {
        .folder = folder, .max_bytes = 1 << 20, .convert.models_dir = "models.d"};
    if (key_of(path, &number, &err) < 0)
        abort();
    snprintf(key, sizeof key, "%016llx", (unsigned long long)number);
    for (const char *at = (const char *)data, *end; size; size -= (size_t)(end - at), at = end) {
        const char *stop = memchr(at, '\n', size);
        end = stop ? stop + 1 : at + size;
        expand(name, at + 1, (size_t)((stop ? stop : end) - at) - (at < (stop ? stop : end)), key);
        make_file(*at, name);
    }
    check_list(folder, SIZE_MAX);
    if (model_cache_open(&cache, path, &model, &err) == 0) {
        check_found(&model, key);
        const bool kept = model.lock >= 0; /* a folder whose lock is no file has none */
        if (model_cache_clear(folder, &removed, &bytes, &left, &err) < 0 ||
            (kept && lstat(model.path, &(struct stat){0}) < 0))
            abort();
        cached_model_close(&model);
    }
    if (model_cache_clear(folder, &removed, &bytes, &left, &err) < 0)
        abort();
    check_list(folder, left);
    if (!scratch_has("kept") || !scratch_has("source.gguf"))
        abort();
    scratch_clear();
    return 0;
}
