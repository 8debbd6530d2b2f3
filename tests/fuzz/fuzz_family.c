/* Family files and config.json: the input is split at its first zero byte. */
#include <stdlib.h>
#include <string.h>

#include "model/family/family.h"
#include "model/weight_kinds.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void configure(const struct family *family, const char *text, size_t size)
{
    struct config config;
    struct conf shape;
    struct buf written = {0};
    struct err err;
    char name[TENSOR_NAME_SIZE];
    json_t *json;
    if (json_parse(text, size, "fuzz", &json, &err) == 0) {
        const struct weight_source source = {.config_name = "fuzz"};
        if (family_configure(family, json, &source, &config, &err) == 0 &&
            config_write(&config, &written, &err) == 0) {
            /* A written configuration reads back. */
            if (conf_parse(&shape, written.data, written.len, "fuzz", &err) < 0 ||
                config_read(&config, &shape, &err) < 0)
                abort();
            conf_release(&shape);
        }
        json_decref(json);
    } else if (conf_parse(&shape, text, size, "fuzz", &err) == 0) {
        (void)!family_configure_shape(family, &shape, &config, &err);
        conf_release(&shape);
    }
    for (size_t i = 0; i < n_weight_kinds; i++)
        for (size_t nth = 0;
             family_tensor(family, &weight_kinds[i], (struct tensor_place){12, 34}, nth, name); nth++)
            ;
    buf_release(&written);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct family family;
    struct err err;
    const uint8_t *cut = size ? memchr(data, 0, size) : NULL;
    if (!cut ||
        family_parse(&family, "models.d", (const char *)data, (size_t)(cut - data), "fuzz", &err) < 0)
        return 0;
    configure(&family, (const char *)cut + 1, size - (size_t)(cut - data) - 1);
    family_release(&family);
    return 0;
}
