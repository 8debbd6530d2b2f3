/* Parsing the index of sharded weights. */
#include "format/hf/hfindex.h"

#include <string.h>

static int add_file(json_t *files, const char *tensor, const json_t *file, const char *name,
                    struct err *err)
{
    const char *text = json_string_value(file);
    if (!text || !*text || strchr(text, '/') || strlen(text) != json_string_length(file))
        return err_set(err, "%s: tensor \"%s\" is not in a file of the folder", name, tensor);
    return json_put(files, text, json_true(), err);
}

int hf_index_parse(json_t **files, const char *text, size_t size, const char *name, struct err *err)
{
    json_t *index, *file;
    const char *tensor;
    int rc = 0;
    *files = NULL;
    if (json_parse_unique(text, size, name, &index, err) < 0)
        return -1;
    json_t *weight_map = json_object_get(index, "weight_map");
    if (!json_is_object(weight_map))
        rc = err_set(err, "%s: weight_map is %s, expected an object", name, json_type_name(weight_map));
    else if (!(*files = json_object()))
        rc = err_set(err, "%s: out of memory", name);
    json_object_foreach(weight_map, tensor, file)
    {
        if (rc == 0)
            rc = add_file(*files, tensor, file, name, err);
    }
    json_decref(index);
    if (rc < 0) {
        json_decref(*files);
        *files = NULL;
    }
    return rc;
}
