/* Thin helpers over jansson. */
#include "base/json.h"

#include <string.h>

int json_parse(const char *text, size_t size, const char *what, json_t **root, struct err *err)
{
    json_error_t why;
    *root = json_loadb(text ? text : "", size, JSON_ALLOW_NUL, &why);
    /* "No limit" is often spelled 1000000000000000019884624638656. */
    if (!*root && json_error_code(&why) == json_error_numeric_overflow)
        *root = json_loadb(text, size, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &why);
    if (!*root)
        return err_set(err, "%s: not valid JSON at line %d, column %d: %s", what, why.line, why.column,
                       why.text);
    return 0;
}

const json_t *json_at(const json_t *root, const char *path)
{
    char key[128];
    while (root && *path) {
        size_t len = strcspn(path, ".");
        if (len >= sizeof key)
            return NULL;
        memcpy(key, path, len);
        key[len] = 0;
        root = json_object_get(root, key);
        path += len + (path[len] == '.');
    }
    return root;
}

const char *json_type_name(const json_t *value)
{
    if (!value)
        return "nothing";
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return "a number";
    case JSON_TRUE: return "true";
    case JSON_FALSE: return "false";
    case JSON_NULL: break;
    }
    return "null";
}
