/* Components of a tokenizer.json -> steps of the tables. Part of building a tokenizer.
 *
 * One file with a table per kind of component, name -> parse function: parts_norm.c, parts_pretok.c,
 * parts_post.c, parts_decode.c. What runs a step is in norm.c, pretok.c and detok.c. */
#include "text/tok_parts.h"

#include "text/tok_parser.h"

/* In the order of parsing. */
static const struct part_list *const lists[] = {
    &parts_normalizers,
    &parts_pretokenizers,
    &parts_postprocessors,
    &parts_decoders,
};

int parts_parse(struct tok_draft *draft, const json_t *tokenizer, bool *has_template, struct err *err)
{
    struct parser parser = {.draft = draft};
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        const json_t *part = json_object_get(tokenizer, lists[i]->what);
        parser.list = lists[i];
        if (part && !json_is_null(part) && parts_one(&parser, part, err) < 0)
            return -1;
    }
    if (parts_leave_letters(&parser, err) < 0)
        return -1;
    bool byte_level = (draft->flags & TOK_BYTE_LEVEL) != 0;
    if (parser.stage == STAGE_START)
        return err_set(err, "%s: a tokenizer without a decoder is not implemented", draft->where);
    if (byte_level != parser.byte_level_decoder)
        return err_set(err, "%s: a %s \"ByteLevel\" without a %s \"ByteLevel\" is not implemented",
                       draft->where, byte_level ? "pre_tokenizer" : "decoder",
                       byte_level ? "decoder" : "pre_tokenizer");
    *has_template = parser.has_template;
    return 0;
}
