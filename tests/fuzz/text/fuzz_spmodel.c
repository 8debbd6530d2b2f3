/* SentencePiece models: accepted ones become JSON with a piece for every id. */
#include <stdlib.h>

#include "base/json.h"
#include "format/hf/spmodel.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need_piece(const json_t *vocab, const json_t *id)
{
    if (!json_is_array(json_array_get(vocab, (size_t)json_integer_value(id))))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf text = {0};
    struct err err;
    json_t *root = NULL;
    if (spmodel_json(&text, data, size, "fuzz", &err) == 0) {
        if (json_parse_unique(text.data, text.len, "fuzz", &root, &err) < 0)
            abort();
        const json_t *vocab = json_at(root, "model.vocab");
        need_piece(vocab, json_at(root, "model.unk_id"));
        if (json_at(root, "bos_id"))
            need_piece(vocab, json_at(root, "bos_id"));
        if (json_at(root, "eos_id"))
            need_piece(vocab, json_at(root, "eos_id"));
    }
    json_decref(root);
    buf_release(&text);
    return 0;
}
