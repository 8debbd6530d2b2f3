/* Parses texts in lines of JSON. */
#include "serve/lines/text_line.h"

#include <stdlib.h>
#include <string.h>

#include "serve/lines/lines.h"
#include "serve/request/request.h"
#include "serve/result.h"
#include "serve/serve.h"

static int check_members(const json_t *root, struct err *err)
{
    static const char *const known[] = {"id", "prompt", "text", "ids", "parse_special"};
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)root, name, value)
    {
        size_t i = 0;
        while (i < ARRAY_LEN(known) && strcmp(name, known[i]) != 0)
            i++;
        if (i == ARRAY_LEN(known))
            return request_unknown(name, known, ARRAY_LEN(known), err);
    }
    return 0;
}

/* The value of a field of the line's JSON object; NULL if absent or null. */
static const json_t *given(const json_t *root, const char *name)
{
    const json_t *value = json_object_get(root, name);
    return json_is_null(value) ? NULL : value;
}

int text_line_parse(const struct text_line_options *options, const char *bytes, size_t len,
                    json_t **root, struct ids *out, struct err *err)
{
    *root = NULL;
    if (lines_check(bytes, err) < 0 || request_line(bytes, len, root, err) < 0)
        return -1;
    const json_t *prompt = given(*root, "prompt"), *text = given(*root, "text"),
                 *ids = given(*root, "ids"), *special = given(*root, "parse_special");
    if (!options->lenient && check_members(*root, err) < 0)
        return -1;
    if ((prompt != NULL) + (text != NULL) + (ids != NULL) != 1)
        return err_set(err, "exactly one of \"text\", \"prompt\" and \"ids\" is expected");
    if (ids)
        return request_ids_of(ids, out, err);
    text = text ? text : prompt;
    if (!json_is_string(text))
        return err_set(err, "\"%s\" is %s, a string is expected", prompt ? "prompt" : "text",
                       json_type_name(text));
    if (special && !json_is_boolean(special))
        return err_set(err, "\"parse_special\" is %s, true or false is expected",
                       json_type_name(special));
    return serve_encode(options->model, json_string_value(text), json_string_length(text), true,
                        special ? json_is_true(special) : options->parse_special, out, err);
}

struct text_line *text_line_add(struct text_line **first, uint64_t number, struct err *err)
{
    struct text_line *line = calloc(1, sizeof *line);
    if (!line) {
        err_set(err, "out of memory for a line");
        return NULL;
    }
    line->number = number;
    line->next = *first;
    line->link = first;
    if (line->next)
        line->next->link = &line->next;
    *first = line;
    return line;
}

void text_line_free(struct text_line *line)
{
    *line->link = line->next;
    if (line->next)
        line->next->link = line->link;
    json_decref(line->root);
    json_decref(line->logprobs);
    ids_release(&line->ids);
    free(line);
}

int text_line_format(const struct text_line *line, json_t *object, struct buf *text, struct err *err)
{
    const json_t *id = json_object_get(line->root, "id");
    char *id_text = id ? request_format_id(id, err) : NULL;
    const int rc = id && !id_text ? -1 : result_put_line(id_text, object, text, err);
    free(id_text);
    return rc;
}
