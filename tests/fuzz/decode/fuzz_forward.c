/* Running an untrusted model: if it opens, a few tokens give some logits. The header's sizes and
 * hash are fixed up first. */
#include "tests/fuzz/support/small_session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CONTEXT = 8 };

static void run(const struct model *model)
{
    struct session *session;
    struct err err;
    const uint32_t token[] = {0, (uint32_t)(model->config.vocab - 1),
                              (uint32_t)(model->config.vocab / 2)};
    const size_t last = 0;
    float *logits = malloc(model->config.vocab * sizeof *logits);
    if (!logits || small_session_open(&session, model, "bmc:r=4", DTYPE_F32,
                                      size_min(CONTEXT, model->config.context), &err) < 0) {
        free(logits);
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(token) && i < session_options(session)->context; i++) {
        batch_add(session, 0, &token[i], 1);
        if (session_run(session, 1, &err) < 0 || session_logits(session, &last, 1, logits, &err) < 0)
            break;
    }
    session_close(session);
    free(logits);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct model *model;
    struct err err;
    char path[64];
    unsigned char *copy = input_copy(data, size);
    if (!copy)
        return 0;
    input_seal_model(copy, size);
    const int fd = input_file(copy, size, path);
    if (fd >= 0 && model_open(&model, path, &err) == 0) {
        run(model);
        model_close(model);
    }
    if (fd >= 0)
        close(fd);
    input_free(copy, size);
    return 0;
}
