/* Parsing the index of sharded weights. */
#include "format/hf/hfindex.h"

#include <string.h>

static bool is_file_of_folder(const json_t *file)
{
    const char *text = json_string_value(file);
    return text && *text && !strchr(text, '/') && strlen(text) == json_string_length(file);
}

int hf_index_parse(json_t **files, const char *text, size_t size, const char *name, struct err *err)
{
    json_t *index, *file;
    const char *tensor;
    int rc = 0;
    *files = NULL;
    if (json_parse_unique(text, size, name, &index, err) < 0)
        return -1;
    json_t *map = json_object_get(index, "weight_map");
    if (!json_is_object(map))
        rc = err_set(err, "%s: weight_map is %s, expected an object", name, json_type_name(map));
    json_object_foreach(map, tensor, file)
    {
        if (rc == 0 && !is_file_of_folder(file))
            rc = err_set(err, "%s: tensor \"%s\" is not in a file of the folder", name, tensor);
    }
    if (rc == 0)
        *files = json_incref(map);
    json_decref(index);
    return rc;
}
