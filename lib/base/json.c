/* Helpers over jansson. */
#include "base/json.h"

#include <utf8proc.h>

#include "base/number.h"

/* Writes null over infinite numbers, which Python writes and JSON does not have; true if there are any. */
static bool drop_infinite(char *text, size_t size)
{
    static const char word[] = "Infinity", null[] = "null    ";
    const size_t len = sizeof word - 1;
    bool string = false, found = false;
    for (size_t i = 0; i < size; i++) {
        if (string && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            string = !string;
        else if (!string && size - i >= len && memcmp(text + i, word, len) == 0) {
            memcpy(text + i, null, len);
            if (i && text[i - 1] == '-')
                text[i - 1] = ' ';
            found = true;
        }
    }
    return found;
}

static int parse_json(const char *text, size_t size, size_t flags, const char *source, json_t **root,
                      struct err *err)
{
    json_error_t why;
    *root = json_load(text ? text : "", size, flags, &why);
    /* an integer above 64 bits: parse all as reals. tokenizer_config.json often has
     * 1000000000000000019884624638656 for "no limit" */
    if (!*root && json_error_code(&why) == json_error_numeric_overflow)
        *root = json_load(text, size, flags | JSON_DECODE_INT_AS_REAL, &why);
    if (*root)
        return 0;
    if (json_error_code(&why) == json_error_out_of_memory)
        return err_no_memory(err, "%s: its JSON", source);
    return err_set(err, "%s: not valid JSON at line %d, column %d: %s", source, why.line, why.column,
                   why.text);
}

int json_parse(const char *text, size_t size, const char *source, json_t **root, struct err *err)
{
    return parse_json(text, size, JSON_ALLOW_NUL, source, root, err);
}

int json_parse_python(const char *text, size_t size, const char *source, json_t **root, struct err *err)
{
    struct err second;
    if (json_parse(text, size, source, root, err) == 0)
        return 0;
    AUTO(free_auto) char *copy = size ? malloc(size) : NULL;
    int rc = -1;
    if (copy)
        memcpy(copy, text, size);
    if (copy && drop_infinite(copy, size))
        rc = json_parse(copy, size, source, root, &second);
    return rc;
}

int json_parse_unique(const char *text, size_t size, const char *source, json_t **root, struct err *err)
{
    return parse_json(text, size, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, source, root, err);
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
        size_t index;
        root = json_is_array(root) ? parse_size(key, &index) ? json_array_get(root, index) : NULL
                                   : json_object_get(root, key);
        path += len + (path[len] == '.');
    }
    return root;
}

json_t *json_text(const char *bytes, size_t len)
{
    static const char replacement[] = "\xef\xbf\xbd";
    json_t *text = json_stringn(len ? bytes : "", len); /* NULL: invalid UTF-8, or out of memory */
    size_t valid_len = 0;
    AUTO(free_auto) char *valid = text || len > SIZE_MAX / 3 ? NULL : malloc(3 * len + 1);
    for (size_t at = 0; valid && at < len;) {
        utf8proc_int32_t code;
        const size_t left = len - at;
        const utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)bytes + at,
                                                    left < 4 ? (utf8proc_ssize_t)left : 4, &code);
        const size_t taken = n > 0 ? (size_t)n : 1, put = n > 0 ? (size_t)n : 3;
        memcpy(valid + valid_len, n > 0 ? bytes + at : replacement, put);
        valid_len += put;
        at += taken;
    }
    if (valid)
        text = json_stringn(valid, valid_len);
    return text;
}

json_t *json_whole(uint64_t number)
{
    char text[24];
    if (number <= INT64_MAX)
        return json_integer((json_int_t)number);
    snprintf(text, sizeof text, "%llu", (unsigned long long)number);
    return json_string(text);
}

json_t *json_floats(const float *value, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n && list; i++) {
        char text[40];
        int digits = 6;
        do
            snprintf(text, sizeof text, "%.*g", digits, (double)value[i]);
        while ((float)strtod(text, NULL) != value[i] && ++digits <= 9);
        if (json_array_append_new(list, json_real(strtod(text, NULL))) < 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

int json_put(json_t *object, const char *key, json_t *value, struct err *err)
{
    return json_object_set_new(object, key, value) == 0 ? 0 : err_no_memory(err, "\"%s\"", key);
}

int json_push(json_t *list, json_t *value, struct err *err)
{
    return json_array_append_new(list, value) == 0 ? 0 : err_no_memory(err, "a list");
}

json_t *json_or_null(json_t *value, int rc, struct err *err)
{
    if (rc == 0 && value)
        return value;
    if (rc == 0)
        err_no_memory(err, "JSON");
    json_decref(value);
    return NULL;
}

int json_append(const json_t *value, size_t flags, struct buf *out, struct err *err)
{
    const size_t size = json_dumpb(value, NULL, 0, flags | JSON_ENCODE_ANY);
    if (!size)
        return err_no_memory(err, "JSON text, or a number that JSON cannot represent");
    if (buf_reserve(out, size, err) < 0)
        return -1;
    if (json_dumpb(value, out->data + out->len, size, flags | JSON_ENCODE_ANY) != size)
        return err_no_memory(err, "JSON text");
    out->len += size;
    out->data[out->len] = 0;
    return 0;
}

const char *json_type_name(const json_t *value)
{
    if (!value)
        return "missing";
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
