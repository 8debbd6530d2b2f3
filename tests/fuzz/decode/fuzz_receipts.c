/* Untrusted receipts, verified with a small model: each line gets one verdict of one line. */
#include "decode/snapshot.h"
#include "serve/receipt.h"
#include "tests/fuzz/support/small_session.h"
#include "tests/unit/tiny_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int count_verdict(void *arg, uint64_t number, bool equal, const char *sentence, struct err *err)
{
    size_t *n = arg;
    (void)number;
    (void)err;
    if (!*sentence || strchr(sentence, '\n') || (equal && !strstr(sentence, "equal")))
        abort();
    ++*n;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct model *model;
    static struct session *session;
    static volatile sig_atomic_t interrupted;
    struct receipt_settings first;
    struct gen_stats stats;
    struct serve serve;
    struct err err;
    size_t lines = 0, verdicts = 0;
    const char *text = (const char *)data;
    if (!model)
        model = tiny_model(64);
    if (!session && small_session_open(&session, model, "bmc:r=16", DTYPE_F32, 64, &err) < 0)
        abort();
    for (size_t i = 0; i < size; i++)
        lines += text[i] == '\n' || i + 1 == size;
    if (size)
        (void)!receipt_first(&first, text, size, &err);
    if (serve_open(&serve, model, NULL, NULL, &err) < 0)
        return 0;
    serve.session = session;
    serve.interrupted = &interrupted;
    if (receipts_verify(&serve, text, size, NULL, count_verdict, &verdicts, &stats, &err) == 0 &&
        verdicts != lines)
        abort();
    serve_close(&serve);
    return 0;
}
