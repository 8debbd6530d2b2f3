/* model.safetensors.index.json: no accepted file name is outside the folder. */
#include <stdlib.h>
#include <string.h>

#include "format/hf/hfdir.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err;
    json_t *files, *file;
    const char *tensor;
    if (hf_index_parse(&files, (const char *)data, size, "fuzz", &err) < 0)
        return 0;
    json_object_foreach(files, tensor, file)
    {
        const char *name = json_string_value(file);
        if (!name || !*name || strchr(name, '/'))
            abort();
    }
    json_decref(files);
    return 0;
}
