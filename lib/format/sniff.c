/* Kinds of files by their first bytes. */
#include "format/sniff.h"

#include <string.h>

#include "base/file.h"
#include "format/bmclayout.h"
#include "format/importance.h"
#include "format/kvfile.h"

enum { ST_HEAD = 8, ST_MAX_HEADER = 100 << 20, FIRST_BYTES = 1024 };

struct bytes {
    const char *data;
    size_t size;
};

static bool starts(struct bytes b, const char *text)
{
    const size_t len = strlen(text);
    return b.size >= len && memcmp(b.data, text, len) == 0;
}

/* A line that begins so, among the first ones. */
static bool has_line(struct bytes b, const char *key)
{
    const char *at = b.data, *end = at + size_min(b.size, FIRST_BYTES);
    while (at && at < end) {
        if (starts((struct bytes){at, (size_t)(end - at)}, key))
            return true;
        at = memchr(at, '\n', (size_t)(end - at));
        at = at ? at + 1 : NULL;
    }
    return false;
}

/* Both are texts of "key value" lines. */
static bool is_profile(struct bytes b) { return has_line(b, "bmc_profile "); }
static bool is_acceptance(struct bytes b) { return starts(b, "target ") && has_line(b, "draft "); }

/* The length of a JSON object, then the object. */
static bool is_safetensors(struct bytes b)
{
    uint64_t header;
    if (b.size <= ST_HEAD || b.data[ST_HEAD] != '{')
        return false;
    memcpy(&header, b.data, sizeof header);
    return header >= 2 && header <= ST_MAX_HEADER;
}

static bool has_no_bytes(struct bytes b)
{
    (void)b;
    return false;
}

static const struct kind {
    const char *name;  /* of a file that is not replaced */
    const char *begin; /* the first bytes, or else: */
    bool (*is)(struct bytes b);
    const char *what,
        *advice,     /* how a sentence calls it, and what to do with it; NULL: has no other place */
        *for_source; /* the same where the source of a conversion is needed; NULL: as elsewhere */
} kinds[FILE_KINDS] = {
    [KIND_OTHER] = {"file", NULL, NULL, NULL, NULL, NULL},
    [KIND_MODEL] = {"model file", BMC_MAGIC, NULL, "a .bmc model", "give the model with -m",
                    "it is converted already: give it with -m"},
    [KIND_SNAPSHOT] = {"snapshot", KVFILE_MAGIC, NULL, "a snapshot",
                       "go on from it with --load-kv, and give its model with -m", NULL},
    [KIND_PROFILE] = {"tuned profile", NULL, is_profile, NULL, NULL, NULL},
    [KIND_ACCEPTANCE] = {"file of measured acceptance", NULL, is_acceptance, NULL, NULL, NULL},
    [KIND_IMPORTANCE] = {"file of importance", IMPORTANCE_MAGIC, NULL, "a file of importance",
                         "give it to bmc-convert with --importance", NULL},
    [KIND_SAFETENSORS] = {"safetensors file", NULL, is_safetensors, NULL, NULL, NULL},
    [KIND_GGUF] = {"GGUF file", "GGUF", NULL, "a GGUF file", "make a .bmc model of it with bmc-convert",
                   "give bmc-convert that file itself"},
    [KIND_ZIP] = {"PyTorch checkpoint", "PK\3\4", NULL, "a PyTorch checkpoint",
                  "give the folder that it lies in, with its config.json, to bmc-convert", NULL},
    [KIND_LFS] = {"Git LFS pointer", "version https://git-lfs.github.com/spec/", NULL,
                  "a Git LFS pointer, not the file itself",
                  "fetch that with \"git lfs pull\" in its folder", NULL},
    [KIND_FOLDER] = {"folder", NULL, has_no_bytes, NULL, NULL, NULL},
};

enum file_kind sniff(const void *data, size_t size)
{
    const struct bytes b = {data, size};
    int kind = size ? FILE_KINDS - 1 : KIND_OTHER;
    while (kind > KIND_OTHER && !(kinds[kind].begin ? starts(b, kinds[kind].begin) : kinds[kind].is(b)))
        kind--;
    return (enum file_kind)kind;
}

enum file_kind file_sniff(const char *path)
{
    char head[FIRST_BYTES];
    return sniff(head, file_head(path, head, sizeof head));
}

enum file_kind path_sniff(const char *path)
{
    return file_is_folder(path) ? KIND_FOLDER : file_sniff(path);
}

const char *file_kind_name(enum file_kind kind) { return kinds[kind].name; }

int sniff_refuse(const void *data, size_t size, enum file_kind good, const char *wanted,
                 const char *name, struct err *err)
{
    const enum file_kind found = sniff(data, size);
    const struct kind *kind = &kinds[found];
    if (!kind->what || found == good)
        return 0;
    return err_set(err, "%s: is %s; %s is needed here: %s", name, kind->what, wanted,
                   good == KIND_OTHER && kind->for_source ? kind->for_source : kind->advice);
}

static bool ends(const char *path, const char *text)
{
    const size_t len = strlen(path), n = strlen(text);
    return len >= n && strcmp(path + len - n, text) == 0;
}

/* "organization/name" and the like: no path that somebody typed with care. */
static bool like_hub_name(const char *path)
{
    const char *slash = strchr(path, '/');
    if (ends(path, ".bmc") || ends(path, ".gguf"))
        return false;
    return *path && *path != '.' && slash != path && (!slash || (slash[1] && !strchr(slash + 1, '/')));
}

int sniff_hub_name(const char *path, const char *what, const char *advice, struct err *err)
{
    if (file_exists(path) || !like_hub_name(path))
        return 0;
    return err_set(err,
                   "%s: there is no such %s, and nothing is downloaded here: if it is a name on the "
                   "Hugging Face hub, fetch it (git clone https://huggingface.co/%s, with Git LFS) "
                   "and %s",
                   path, what, path, advice);
}
