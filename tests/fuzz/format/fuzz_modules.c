/* Files of sentence-transformers, one after the other with a byte of 255 between them: an error, or a pooling, and prompts
 * that a model file holds. */
#include "format/hf/hfdir.h"
#include "tests/fuzz/support/input.h"
#include "tests/fuzz/support/scratch.h"
#include "text/chat/chat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void keep_prompts(const json_t *made)
{
    struct chat chat = {.prompts = json_object_get(made, "prompts")}, again;
    struct buf text = {0};
    struct err err;
    char names[64];
    chat_name_prompts(chat.prompts, names, sizeof names);
    if (chat.prompts && chat_write(&chat, &text, &err) == 0) {
        if (chat_parse(&again, buf_text(&text), text.len, "fuzz", &err) < 0 ||
            !json_equal(again.prompts, chat.prompts))
            abort();
        chat_release(&again);
    }
    buf_release(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"modules.json", "1_Pooling/config.json",
                                        "config_sentence_transformers.json", "2_Dense/config.json"};
    json_t *made = NULL;
    struct err err;
    if (!scratch_begin())
        scratch_clear();
    (void)scratch_write("1_Pooling", NULL, 0);
    (void)scratch_write("2_Dense", NULL, 0);
    for (size_t i = 0; i < ARRAY_LEN(names) && size; i++) {
        const uint8_t *end = memchr(data, 255, size);
        const size_t len = end ? (size_t)(end - data) : size;
        (void)scratch_write(names[i], data, len);
        data += len + (end != NULL);
        size -= len + (end != NULL);
    }
    if (hf_pooling_read(&made, scratch_folder, &err) < 0)
        return 0;
    if (made && !json_is_string(json_object_get(made, "pooling")))
        abort();
    keep_prompts(made);
    json_decref(made);
    return 0;
}
