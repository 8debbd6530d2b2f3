/* Family files and config.json: the input is split at its first zero byte. */
#include <stdlib.h>
#include <string.h>

#include "model/family/family.h"
#include "model/weight_kinds.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A configuration's text reads back, and gives the same text again. */
static void check_text(struct config *config)
{
    struct buf first = {0}, second = {0};
    struct conf conf;
    struct err err;
    if (config_write(config, &first, &err) == 0) {
        config_close(config);
        if (conf_parse(&conf, first.data, first.len, "fuzz", &err) < 0 ||
            config_read(config, &conf, &err) < 0 || config_write(config, &second, &err) < 0 ||
            second.len != first.len || memcmp(first.data, second.data, first.len) != 0)
            abort();
        conf_release(&conf);
    }
    for (size_t layer = 0; layer < config->layers; layer++)
        if (config->plan[layer].rope > LAYER_NOPE ||
            (config->plan[layer].window > 0) != (config->plan[layer].kind == LAYER_SLIDING))
            abort();
    config_close(config);
    buf_release(&first);
    buf_release(&second);
}

static void configure(const struct family *family, const char *text, size_t size)
{
    struct config config;
    struct conf shape;
    struct err err;
    char name[TENSOR_NAME_SIZE];
    json_t *json;
    if (json_parse(text, size, "fuzz", &json, &err) == 0) {
        const struct weight_source source = {.config_name = "fuzz"};
        json_t *language_model = family_text_config(family, json, &err);
        if (language_model && family_configure(family, language_model, &source, &config, &err) == 0)
            check_text(&config);
        json_decref(language_model);
        json_decref(json);
    } else if (conf_parse(&shape, text, size, "fuzz", &err) == 0) {
        if (family_configure_shape(family, &shape, &config, &err) == 0)
            check_text(&config);
        conf_release(&shape);
    }
    for (size_t i = 0; i < n_weight_kinds; i++) {
        /* convolutions have one part for each of Q, K and V in place of experts */
        const struct tensor_place place = {12, weight_kinds[i].out == DIM_CONV_WEIGHT ? 2 : 34};
        for (size_t nth = 0; family_tensor(family, &weight_kinds[i], place, nth, name); nth++)
            ;
    }
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
