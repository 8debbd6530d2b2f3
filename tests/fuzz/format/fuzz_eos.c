/* generation_config.json and config.json: accepted eos ids are valid. The input is split at its
 * first zero byte. */
#include <stdlib.h>
#include <string.h>

#include "model/convert/generation_source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *cut = size ? memchr(data, 0, size) : NULL;
    const size_t first = cut ? (size_t)(cut - data) : size, used = first + (cut != NULL);
    struct config config = {.vocab = 32000};
    json_t *generation = NULL, *json = NULL;
    struct err err;
    if (json_parse((const char *)data, first, "fuzz", &generation, &err) < 0)
        generation = NULL;
    if (json_parse((const char *)data + used, size - used, "fuzz", &json, &err) < 0)
        json = NULL;
    if (eos_read(&config, generation, json, "fuzz", &err) == 0)
        for (size_t i = 0; i < config.n_eos; i++)
            if (config.eos[i] >= config.vocab)
                abort();
    json_decref(generation);
    json_decref(json);
    return 0;
}
