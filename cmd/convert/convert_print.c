/* Prints the output of --info. */
#include "convert/inspect.h"

#include "cli.h"

/* Prints "key              value" for a JSON value. */
static int put_member(const char *key, const json_t *value, struct buf *out, struct err *err)
{
    const size_t from = out->len;
    int rc = buf_addf(out, err, "%-16s ", key);
    if (rc == 0)
        rc = json_is_string(value)
                 ? buf_add(out, json_string_value(value), json_string_length(value), err)
                 : json_format(value, JSON_REAL_PRECISION(9), out, err);
    if (rc < 0)
        return -1;
    text_make_printable(out->data + from, out->len - from, "");
    return buf_add(out, "\n", 1, err);
}

int convert_write_info(const json_t *about, const json_t *rows, enum table_format format,
                       struct err *err)
{
    AUTO(buf_release) struct buf text = {0};
    const char *key;
    json_t *value;
    int rc = 0;
    if (format == TABLE_TEXT) {
        json_object_foreach((json_t *)(uintptr_t)about, key, value)
        {
            if (rc == 0)
                rc = put_member(key, value, &text, err);
        }
        if (rc == 0)
            rc = buf_add(&text, "\n", 1, err);
    }
    if (rc == 0)
        rc = table_write(rows, about, format, &text, err);
    if (rc == 0)
        rc = cli_put(buf_text(&text), text.len, err);
    return rc;
}
