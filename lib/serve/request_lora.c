/* Finds the LoRA adapters that a request names. */
#include "serve/request_lora.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text_util.h"

/* The last component of a path, without slashes at its end. */
static struct slice_of_path {
    const char *at;
    size_t len;
} last_component(const char *path)
{
    size_t end = strlen(path), at;
    while (end > 1 && path[end - 1] == '/')
        end--;
    for (at = end; at > 0 && path[at - 1] != '/';)
        at--;
    return (struct slice_of_path){path + at, end - at};
}

static bool has_name(const struct lora *lora, const char *name)
{
    const struct slice_of_path last = last_component(lora->path);
    return strcmp(lora->path, name) == 0 ||
           (strlen(name) == last.len && memcmp(name, last.at, last.len) == 0);
}

static int find_name(const char *name, const struct loras *loras, size_t *index, struct err *err)
{
    size_t n = 0;
    for (size_t i = 0; i < loras->n; i++)
        if (has_name(loras->one[i], name)) {
            *index = i;
            n++;
        }
    if (n == 1)
        return 0;
    return err_set(err, "\"lora\": %s --lora %s \"%s\"%s", n ? "several" : "no",
                   n ? "options have" : "option has", excerpt_of(name, strlen(name)).text,
                   n ? ": give the number of one, from 0" : "");
}

static int find_adapter(const json_t *id, const struct loras *loras, size_t *index, struct err *err)
{
    if (!loras || !loras->n)
        return err_set(err, "\"lora\" names adapters, but the model was opened without any: give them "
                            "with --lora, or to bmc_model_open_with()");
    if (json_is_string(id))
        return find_name(json_string_value(id), loras, index, err);
    *index = (size_t)json_integer_value(id);
    return *index < loras->n
               ? 0
               : err_set(err, "\"lora\": there is no adapter %lld: --lora is given %zu time%s, from 0",
                         (long long)json_integer_value(id), loras->n, loras->n == 1 ? "" : "s");
}

int request_lora(const json_t *list, const struct loras *loras, float **factor, struct err *err)
{
    const json_t *one;
    size_t i, index;
    if (!(*factor = mem_zalloc(loras && loras->n ? loras->n : 1, sizeof **factor)))
        return err_no_memory(err, "a request");
    if (json_is_string(list)) {
        if (find_adapter(list, loras, &index, err) < 0)
            return -1;
        (*factor)[index] = 1;
    }
    json_array_foreach(list, i, one)
    {
        const json_t *id = json_is_object(one) ? json_object_get(one, "id") : one;
        const json_t *scale = json_is_object(one) ? json_object_get(one, "scale") : NULL;
        if (find_adapter(id, loras, &index, err) < 0)
            return -1;
        (*factor)[index] += scale ? (float)json_number_value(scale) : 1;
    }
    return 0;
}
