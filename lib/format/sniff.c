/* Kinds of files by their first bytes. */
#include "format/sniff.h"

#include <string.h>

static const struct kind {
    enum sniffed kind;
    const char *begin;
    const char *what; /* NAME: is .. */
    const char *todo;
} kinds[] = {
    {SNIFF_MODEL, "BMCMODEL", "a .bmc model", "it is converted already: give it with -m"},
    {SNIFF_SNAPSHOT, "BMCKVSNP", "a snapshot",
     "go on from it with --load-kv, and give its model with -m"},
    {SNIFF_GGUF, "GGUF", "a GGUF file, which cannot be read yet",
     "convert the Hugging Face folder that it was made from with bmc-convert"},
    {SNIFF_ZIP, "PK\3\4", "a PyTorch checkpoint, which cannot be read yet",
     "save the model as safetensors (save_pretrained) and give its folder to bmc-convert"},
    {SNIFF_LFS, "version https://git-lfs.github.com/spec/", "a Git LFS pointer, not the file itself",
     "fetch that with \"git lfs pull\" in its folder"},
};

static const struct kind *find(const void *data, size_t size)
{
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        const size_t len = strlen(kinds[i].begin);
        if (size >= len && memcmp(data, kinds[i].begin, len) == 0)
            return &kinds[i];
    }
    return NULL;
}

enum sniffed sniff(const void *data, size_t size)
{
    const struct kind *kind = find(data, size);
    return kind ? kind->kind : SNIFF_UNKNOWN;
}

int sniff_refuse(const void *data, size_t size, enum sniffed good, const char *wanted, const char *name,
                 struct err *err)
{
    const struct kind *kind = find(data, size);
    if (!kind || kind->kind == good)
        return 0;
    return err_set(err, "%s: is %s; %s is needed here: %s", name, kind->what, wanted, kind->todo);
}
