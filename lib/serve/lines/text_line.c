/* Reads texts from lines, plain or JSON, and writes their results. */
#include "serve/lines/text_line.h"

#include <stdlib.h>
#include <string.h>

#include "serve/request/request.h"
#include "serve/result.h"
#include "serve/serve.h"

static int check_members(const json_t *root, foreign_members *ignored, struct err *err)
{
    static const char *const known[] = {"id", "prompt", "text", "ids", "parse_special"};
    const char *name;
    json_t *value;
    bool openai;
    json_object_foreach((json_t *)(uintptr_t)root, name, value)
    {
        size_t i = 0;
        while (i < ARRAY_LEN(known) && strcmp(name, known[i]) != 0)
            i++;
        const int found = i < ARRAY_LEN(known) ? 1 : foreign_member(name, value, ignored, &openai, err);
        if (found <= 0)
            return found < 0 ? -1 : request_unknown(name, known, ARRAY_LEN(known), err);
    }
    return 0;
}

/* The value of a field of the line's JSON object; NULL if absent or null. */
static const json_t *given(const json_t *root, const char *name)
{
    const json_t *value = json_object_get(root, name);
    return json_is_null(value) ? NULL : value;
}

/* Parses a line of JSON: keeps the object as its root and appends token ids. */
static int parse(struct text_lines *texts, const char *bytes, size_t len, json_t **root,
                 struct ids *out, struct err *err)
{
    const struct text_line_options *options = &texts->options;
    if (request_line(bytes, len, root, err) < 0)
        return -1;
    const json_t *prompt = given(*root, "prompt"), *text = given(*root, "text"),
                 *ids = given(*root, "ids"), *special = given(*root, "parse_special");
    if (!options->lenient && check_members(*root, &texts->ignored, err) < 0)
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

/* Adds a line to those in flight; the result's place in the output is reserved. */
static int add(struct text_lines *texts, struct text_line **added, struct err *err)
{
    if (results_expect(texts->results, texts->lines->number, err) < 0)
        return -1;
    struct text_line *line = calloc(1, sizeof *line);
    if (!line)
        return err_no_memory(err, "a line");
    line->number = texts->lines->number;
    line->index = texts->n_lines;
    line->next = texts->first;
    line->link = &texts->first;
    if (line->next)
        line->next->link = &line->next;
    texts->first = line;
    *added = line;
    if (texts->logprobs && !(line->logprobs = json_array())) {
        text_line_free(line);
        return err_no_memory(err, "a line");
    }
    texts->n_lines++;
    return 0;
}

int text_lines_next(struct text_lines *texts, bool wait, struct text_line **line, bool *valid,
                    struct err *why, struct err *err)
{
    const struct text_line_options *o = &texts->options;
    const char *bytes;
    size_t len;
    const int got = lines_next(texts->lines, wait, &bytes, &len, err);
    if (got != GEN_REQUEST)
        return got;
    if (add(texts, line, err) < 0)
        return -1;
    int rc = lines_check(bytes, why);
    if (rc == 0 && texts->lines->json)
        rc = parse(texts, bytes, len, &(*line)->root, &(*line)->ids, why);
    else if (rc == 0)
        rc = serve_encode(o->model, bytes, len, true, o->parse_special, &(*line)->ids, why);
    *valid = rc == 0;
    return GEN_REQUEST;
}

int text_lines_finish(struct text_lines *texts, struct text_line *line, json_t *object, bool failed,
                      struct err *err)
{
    const json_t *id = json_object_get(line->root, "id");
    char *id_text = id ? request_format_id(id, err) : NULL;
    struct buf text = {0};
    int rc = id && !id_text ? -1 : result_put_line(id_text, object, &text, err);
    free(id_text);
    json_decref(object);
    if (rc < 0) {
        buf_release(&text);
        return -1;
    }
    texts->n_failed += failed;
    rc = results_put(texts->results, line->number, &text, err);
    text_line_free(line);
    return rc;
}
