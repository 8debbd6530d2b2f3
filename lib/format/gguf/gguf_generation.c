/* GGUF metadata in the form of generation_config.json: EOS ids and sampling defaults. */
#include "format/gguf/gguf_config.h"

#include <stdio.h>

#include "format/gguf/gguf_json.h"
#include "format/sampling.h"

static int put_ends(const struct gguf *gguf, json_t *generation, struct err *err)
{
    static const char *const ends[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    int64_t ids[ARRAY_LEN(ends)];
    json_t *list = json_array();
    int rc = list ? 0 : err_no_memory(err, "EOS ids");
    for (size_t i = 0; i < ARRAY_LEN(ends) && rc == 0; i++) {
        ids[i] = gguf_integer(gguf, ends[i], -1);
        bool known = ids[i] < 0;
        for (size_t before = 0; before < i; before++)
            known |= ids[before] == ids[i];
        if (!known)
            rc = json_push(list, json_integer(ids[i]), err);
    }
    if (rc == 0)
        return json_put(generation, "eos_token_id", list, err);
    json_decref(list);
    return -1;
}

/* Sampling defaults. Samplers in another order, general.sampling.sequence, are not read. */
static int put_sampling(const struct gguf *gguf, json_t *generation, struct err *err)
{
    enum { LAST_N = 64 }; /* tokens that GGUF's repetition penalty considers by default */
    for (size_t i = 0; i < SAMPLING_COUNT_OF_PARAMS; i++) {
        char key[64];
        if (!sampling_params[i].gguf)
            continue;
        snprintf(key, sizeof key, "general.sampling.%s", sampling_params[i].gguf);
        struct gguf_element e = gguf_elements(gguf_value(gguf, key));
        if (e.of && gguf_next(&e) &&
            json_put(generation, sampling_params[i].generation, gguf_json(&e), err) < 0)
            return -1;
    }
    if (json_object_get(generation, "repetition_penalty") &&
        !json_object_get(generation, "repeat_last_n"))
        return json_put(generation, "repeat_last_n", json_integer(LAST_N), err);
    return 0;
}

int gguf_generation(json_t **generation, const struct gguf_set *set, struct err *err)
{
    json_t *made = json_object();
    int rc = made ? 0 : err_no_memory(err, "EOS ids");
    if (rc == 0)
        rc = put_ends(&set->file[0], made, err);
    if (rc == 0)
        rc = put_sampling(&set->file[0], made, err);
    *generation = json_or_null(made, rc, err);
    return *generation ? 0 : -1;
}
