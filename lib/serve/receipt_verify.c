/* Verifies receipts: replays their requests, and compares what is drawn now, and from which logits. */
#include "decode/step_replay.h"
#include "serve/lines.h"
#include "serve/receipt_json.h"

struct receipt_check {
    struct line_queue queue; /* first */
    struct serve_io io;
    const char *at, *end;
    uint64_t number; /* of the next line */
    const struct receipt_key *key;
    receipt_verdict *verdict;
    void *verdict_arg;
};

/* ---- comparing ---- */

static bool has_bytes(const json_t *hex, unsigned char *bytes, size_t n)
{
    const char *text = json_string_value(hex);
    size_t len = 0;
    return text && strlen(text) == 2 * n &&
           sodium_hex2bin(bytes, n, text, 2 * n, NULL, &len, NULL) == 0 && len == n;
}

/* Checks the signature over the text of the receipt that the model has given. Sets `by` to what follows the verdict. */
static int check_signature(const struct receipt_check *v, const json_t *given, json_t *made, char *by,
                           size_t size, struct err *err)
{
    unsigned char public[crypto_sign_PUBLICKEYBYTES], signature[crypto_sign_BYTES];
    json_t *name = json_object_get(given, "public_key");
    AUTO(buf_release) struct buf text = {0};
    if (!name && !json_object_get(given, "signature")) {
        snprintf(by, size, "not signed");
        return v->key ? err_set(err, "it is not signed") : 0;
    }
    if (!has_bytes(name, public, sizeof public) ||
        !has_bytes(json_object_get(given, "signature"), signature, sizeof signature))
        return err_set(err, "\"public_key\" or \"signature\" is no such thing");
    if (json_put(made, "public_key", json_incref(name), err) < 0 || receipt_text(made, &text, err) < 0)
        return -1;
    if (crypto_sign_verify_detached(signature, (unsigned char *)text.data, text.len - 1, public) != 0)
        return err_set(err, "it was changed after it was signed, or not signed by its public_key");
    const bool known = v->key && (memcmp(public, v->key->public, sizeof public) == 0 ||
                                  memcmp(public, v->key->seed, sizeof public) == 0);
    if (v->key && !known)
        return err_set(err, "it is signed by another key than the given one");
    snprintf(by, size, "signed by %s key %.16s..", known ? "the given" : "its own",
             json_string_value(name));
    return 0;
}

/* True if the text of entry i is the same in both lists. */
static bool same_link(const json_t *a, const json_t *b, size_t i)
{
    const json_t *one = json_array_get(a, i), *other = json_array_get(b, i);
    return one && other && json_equal(one, other);
}

/* What was drawn at a position, for sentences. */
static const char *token_text(const json_t *receipt, size_t i, char text[32])
{
    const json_t *id = json_array_get(json_object_get(receipt, "tokens"), i);
    if (id)
        snprintf(text, 32, "token %lld", (long long)json_integer_value(id));
    else
        snprintf(text, 32, "no token");
    return text;
}

/* Says where the receipt first differs from the one that the model gives now; false: nowhere. */
static bool find_difference(const json_t *given, const json_t *made, struct err *why)
{
    static const char *const rest[] = {"chain", "finish", "text"};
    const json_t *a = json_object_get(given, "links"), *b = json_object_get(made, "links");
    const json_t *tokens = json_object_get(given, "tokens"), *drawn = json_object_get(made, "tokens");
    const size_t n = size_max(json_array_size(tokens), json_array_size(drawn));
    const size_t links = size_max(json_array_size(a), json_array_size(b));
    char one[32], other[32];
    if (!same_link(a, b, 0))
        return err_set(why, "its settings or request were changed after the answer was made"), true;
    for (size_t i = 0; i < size_max(n, links - 1); i++) {
        const json_t *id = json_array_get(tokens, i), *now = json_array_get(drawn, i);
        if (i < n && !(id && now && json_equal(id, now)))
            return err_set(why, "differs at token %zu: it has %s, the model gives %s", i,
                           token_text(given, i, one), token_text(made, i, other)),
                   true;
        if (!same_link(a, b, i + 1))
            return err_set(why, "differs at token %zu: %s is the same, its logits differ", i,
                           token_text(given, i, one)),
                   true;
    }
    for (size_t i = 0; i < ARRAY_LEN(rest); i++)
        if (!json_equal(json_object_get(given, rest[i]), json_object_get(made, rest[i])))
            return err_set(why, "differs in \"%s\" behind token %zu", rest[i], n), true;
    return false;
}

static int compare(void *arg, const struct gen_result *result, json_t *made, struct err *err)
{
    const struct receipt_check *v = arg;
    const struct request_line *line = ((const struct choice *)result->request->user)->line;
    char sentence[512], by[64];
    struct err why;
    const bool equal = !find_difference(line->replay->receipt, made, &why) &&
                       check_signature(v, line->replay->receipt, made, by, sizeof by, &why) == 0;
    if (equal)
        snprintf(sentence, sizeof sentence, "equal, %zu tokens, %s", result->n_ids, by);
    return v->verdict(v->verdict_arg, line->number, equal, equal ? sentence : why.text, err);
}

/* ---- the run ---- */

static int next_line(void *arg, bool wait, struct serve_input *input, struct err *err)
{
    struct receipt_check *v = arg;
    (void)wait;
    (void)err;
    if (v->at == v->end)
        return GEN_END;
    const char *end = memchr(v->at, '\n', (size_t)(v->end - v->at));
    end = end ? end : v->end;
    *input = (struct serve_input){.json = v->at, .len = (size_t)(end - v->at), .number = v->number++};
    v->at = end + (end < v->end);
    return GEN_REQUEST;
}

/* Of a receipt that cannot be replayed. */
static int take_failure(void *arg, const struct serve_choice *which, const struct gen_result *result,
                        const struct err *error, struct err *err)
{
    const struct receipt_check *v = arg;
    (void)result;
    return v->verdict(v->verdict_arg, which->number, false, error->text, err);
}

static int next_replay(void *arg, bool wait, const struct gen_request **request, struct err *err)
{
    struct receipt_check *v = arg;
    struct request_line *line;
    const int got = line_queue_read(&v->queue, wait, &line, err);
    if (got == GEN_REQUEST)
        *request = &line->choice->gen;
    return got;
}

static int end_replay(void *arg, const struct gen_result *result, struct err *err)
{
    struct receipt_check *v = arg;
    struct request_line *line = ((struct choice *)result->request->user)->line;
    int rc = 0;
    if (result->finish == FINISHED_ERROR)
        rc = v->verdict(v->verdict_arg, line->number, false, result->error->text, err);
    line_queue_drop(&v->queue, line);
    return rc;
}

int receipts_verify(struct serve *serve, const char *text, size_t len, const struct receipt_key *key,
                    receipt_verdict *verdict, void *arg, struct gen_stats *stats, struct err *err)
{
    struct receipt_check v = {.queue = {.serve = serve, .prepare = receipt_read},
                              .io = {.next = next_line, .take = take_failure, .arg = &v},
                              .at = text,
                              .end = text + len,
                              .key = key,
                              .verdict = verdict,
                              .verdict_arg = arg};
    struct receipts *receipts;
    struct step_replay *replay = NULL;
    v.queue.io = &v.io;
    if (receipts_open(&receipts, serve, compare, &v, err) < 0)
        return -1;
    const struct gen_callbacks callbacks = {
        .next = next_replay, .done = end_replay, .arg = &v, .watch = receipts_watch(receipts)};
    int rc = step_replay_open(&replay, serve->session, err);
    if (rc == 0)
        rc = generate(serve->session, &serve->options.sampling, step_replay_strategy(replay),
                      &callbacks, serve->interrupted, stats, err);
    line_queue_release(&v.queue);
    step_replay_close(replay);
    receipts_close(receipts);
    return rc;
}
