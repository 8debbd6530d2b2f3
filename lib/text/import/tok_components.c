/* Compiles components of tokenizer.json to steps of the tables. Each kind of component has a
 * file with a table of names and parsers: import_normalizers.c, import_pretokenizers.c,
 * import_postprocessors.c, import_decoders.c. Steps are executed in norm.c, pretok.c and
 * detok.c. */
#include "text/import/tok_components.h"

#include "text/import/tok_parser.h"

/* The kinds of components, in the order in which they are parsed. */
static const struct component_list *const lists[] = {
    &normalizer_components,
    &pretokenizer_components,
    &postprocessor_components,
    &decoder_components,
};

int tok_components_parse(struct tok_writer *writer, const json_t *tokenizer, bool *has_template,
                         struct err *err)
{
    struct parser parser = {.writer = writer};
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        const json_t *json = json_object_get(tokenizer, lists[i]->what);
        parser.list = lists[i];
        if (json && !json_is_null(json) && component_parse(&parser, json, err) < 0)
            return -1;
    }
    if (components_leave_byte_alphabet(&parser, err) < 0)
        return -1;
    bool byte_level = (writer->flags & TOK_BYTE_LEVEL) != 0;
    if (parser.stage == STAGE_START)
        return err_set(err, "%s: a tokenizer without a decoder is not supported", writer->where);
    if (byte_level != parser.byte_level_decoder)
        return err_set(err, "%s: a %s \"ByteLevel\" without a %s \"ByteLevel\" is not supported",
                       writer->where, byte_level ? "pre_tokenizer" : "decoder",
                       byte_level ? "decoder" : "pre_tokenizer");
    *has_template = parser.has_template;
    return 0;
}
