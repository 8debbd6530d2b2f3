/* Parses decoders of tokenizer.json, which become decoder steps of the tokenizer tables. */
#include "text/import/tok_parser.h"

static int advance(struct parser *parser, const char *name, enum decode_stage from,
                   enum decode_stage to, struct err *err)
{
    if (parser->stage > from)
        return err_set(err, "%s: decoder \"%s\" at this position of a Sequence is not supported",
                       parser->writer->where, name);
    parser->stage = to;
    return 0;
}

static int parse_decode_bytes(struct parser *parser, const json_t *json, struct err *err)
{
    (void)json;
    if (advance(parser, "ByteFallback", STAGE_REPLACED, STAGE_BYTES, err) < 0)
        return -1;
    return tok_writer_add_step(parser->writer, LIST_DECODER, DECODE_BYTES, 0, NULL, NULL, err);
}

static int parse_decode_byte_level(struct parser *parser, const json_t *json, struct err *err)
{
    (void)json;
    parser->byte_level_decoder = true;
    return advance(parser, "ByteLevel", STAGE_START, STAGE_FUSED, err);
}

static int parse_decode_fuse(struct parser *parser, const json_t *json, struct err *err)
{
    (void)json;
    return advance(parser, "Fuse", STAGE_FUSED, STAGE_FUSED, err);
}

static int parse_decode_metaspace(struct parser *parser, const json_t *json, struct err *err)
{
    static const struct slice space = {" ", 1};
    struct slice mark;
    enum metaspace_scheme scheme;
    if (advance(parser, "Metaspace", STAGE_REPLACED, STAGE_REPLACED, err) < 0 ||
        component_metaspace(parser, json, &mark, &scheme, err) < 0)
        return -1;
    return tok_writer_add_step(parser->writer, LIST_DECODER, DECODE_METASPACE, scheme != SCHEME_NEVER,
                               &mark, &space, err);
}

static int parse_decode_replace(struct parser *parser, const json_t *json, struct err *err)
{
    struct slice pattern, content;
    struct buf regex = {0};
    bool is_regex;
    int rc = -1;
    if (advance(parser, "Replace", STAGE_REPLACED, STAGE_REPLACED, err) == 0 &&
        component_pattern(parser, json, &regex, &pattern, &is_regex, err) == 0 &&
        component_string(parser, json, "content", &content, err) == 0)
        rc = is_regex ? err_set(err, "%s: decoder \"Replace\" with a Regex is not supported",
                                parser->writer->where)
                      : tok_writer_add_step(parser->writer, LIST_DECODER, DECODE_REPLACE, 0, &pattern,
                                            &content, err);
    buf_release(&regex);
    return rc;
}

static int parse_decode_strip(struct parser *parser, const json_t *json, struct err *err)
{
    struct slice content;
    json_int_t start, stop;
    if (component_string(parser, json, "content", &content, err) < 0 ||
        component_count(parser, json, "start", &start, err) < 0 ||
        component_count(parser, json, "stop", &stop, err) < 0)
        return -1;
    if (parser->stage != STAGE_FUSED || content.size != 1 || start < 0 || start > 1 || stop != 0)
        return err_set(err,
                       "%s: decoder \"Strip\" is only supported for one character at the start, "
                       "after a \"Fuse\"",
                       parser->writer->where);
    parser->stage = STAGE_STRIPPED;
    return start
               ? tok_writer_add_step(parser->writer, LIST_DECODER, DECODE_STRIP, 0, &content, NULL, err)
               : 0;
}

static const struct component components[] = {
    {"ByteFallback", parse_decode_bytes}, {"ByteLevel", parse_decode_byte_level},
    {"Fuse", parse_decode_fuse},          {"Metaspace", parse_decode_metaspace},
    {"Replace", parse_decode_replace},    {"Sequence", component_parse_sequence},
    {"Strip", parse_decode_strip},
};

const struct component_list decoder_components = {"decoder", "decoders", components,
                                                  ARRAY_LEN(components)};
