/* Forges receipts: changes a member, and computes the hash chain of the changed receipt with the public library, libsodium
 * and what bmc-gen(1) says alone. Without a change it is a second implementation of the format.
 *
 *     forge_receipt MODEL [PATH JSON] .. <RECEIPT >FORGED        PATH as tokens.3, request.temp */
#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bmc.h"

static void stop(const char *why)
{
    fprintf(stderr, "forge_receipt: %s\n", why);
    exit(1);
}

static char *text_of(const json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(17));
    if (!text)
        stop("out of memory");
    return text;
}

static void change(json_t *at, char *path, const char *value)
{
    json_t *to = json_loads(value, JSON_DECODE_ANY, NULL);
    char *dot;
    for (; (dot = strchr(path, '.')); path = dot + 1) {
        *dot = 0;
        at = json_object_get(at, path);
    }
    if ((json_is_array(at) ? json_array_set_new(at, strtoul(path, NULL, 10), to)
                           : json_object_set_new(at, path, to)) < 0)
        stop("no such member");
}

/* The ids of the prompt and the answer in one list. */
static uint32_t *all_ids(const json_t *receipt, size_t *n_prompt, size_t *n)
{
    const json_t *prompt = json_object_get(json_object_get(receipt, "request"), "ids"),
                 *tokens = json_object_get(receipt, "tokens");
    *n_prompt = json_array_size(prompt);
    *n = *n_prompt + json_array_size(tokens);
    uint32_t *ids = calloc(*n + 1, sizeof *ids);
    for (size_t i = 0; ids && i < *n; i++)
        ids[i] = (uint32_t)json_integer_value(i < *n_prompt ? json_array_get(prompt, i)
                                                            : json_array_get(tokens, i - *n_prompt));
    return ids;
}

struct link {
    unsigned char byte[32];
};

static void add_link(json_t *links, const struct link *link, size_t bytes)
{
    char hex[65];
    json_array_append_new(links, json_string(sodium_bin2hex(hex, sizeof hex, link->byte, bytes)));
}

static void next_link(struct link *link, uint32_t id, const float *logits, size_t vocab)
{
    unsigned char message[52];
    memcpy(message, link->byte, 32);
    memcpy(message + 32, &id, 4);
    crypto_onetimeauth(message + 36, (const unsigned char *)logits, 4 * vocab, link->byte);
    crypto_generichash(link->byte, 32, message, sizeof message, NULL, 0);
}

/* Link 0: the text in front of the tokens. */
static struct link first_link(const json_t *receipt)
{
    struct link link;
    char *text = text_of(receipt), *end = strstr(text, ",\"tokens\":");
    crypto_generichash(link.byte, 32, (unsigned char *)text, (size_t)(end - text), NULL, 0);
    free(text);
    return link;
}

static void put_chain(json_t *receipt, const struct bmc_model *model, struct bmc_context *context)
{
    const size_t vocab = bmc_model_vocab(model);
    size_t n_prompt, n;
    uint32_t *ids = all_ids(receipt, &n_prompt, &n), eos = 0;
    const bool ended = json_array_size(json_object_get(receipt, "links")) > n - n_prompt + 1;
    const size_t outputs = n - n_prompt + ended;
    float *logits = calloc(outputs + 1, vocab * sizeof *logits);
    struct bmc_error error;
    const struct bmc_input input = {.size = sizeof input,
                                    .ids = ids,
                                    .n_ids = n_prompt + outputs - (outputs > 0),
                                    .n_outputs = outputs,
                                    .logits = logits};
    if (!ids || !logits || bmc_eval(context, &input, 1, &error) < 0)
        stop("the tokens cannot be evaluated");
    while (ended && !bmc_is_eog(model, eos))
        eos++;
    ids[n] = eos;
    struct link link = first_link(receipt);
    json_t *links = json_array(), *chain = json_array();
    add_link(links, &link, 4);
    for (size_t i = 0; i < outputs; i++) {
        next_link(&link, ids[n_prompt + i], logits + i * vocab, vocab);
        add_link(links, &link, 4);
    }
    add_link(chain, &link, 32);
    json_object_set_new(receipt, "links", links);
    json_object_set(receipt, "chain", json_array_get(chain, 0));
    json_decref(chain);
    free(logits);
    free(ids);
}

int main(int argc, char **argv)
{
    struct bmc_model *model;
    struct bmc_context *context = NULL;
    struct bmc_error error;
    json_t *receipt = json_loadf(stdin, JSON_ALLOW_NUL, NULL);
    if (sodium_init() < 0 || !receipt)
        stop("a receipt is expected");
    const struct bmc_options options = {
        .size = sizeof options,
        .context = (size_t)json_integer_value(json_object_get(receipt, "context")),
        .precision = json_string_value(json_object_get(receipt, "precision")),
        .cache_type = json_string_value(json_object_get(receipt, "cache_type"))};
    if (bmc_model_open(&model, argv[1], &error) < 0 ||
        bmc_context_open(&context, model, &options, &error) < 0)
        stop("the model cannot be opened");
    for (int i = 2; i + 1 < argc; i += 2)
        change(receipt, argv[i], argv[i + 1]);
    put_chain(receipt, model, context);
    char *text = text_of(receipt);
    puts(text);
    free(text);
    bmc_context_close(context);
    bmc_model_close(model);
    json_decref(receipt);
    return 0;
}
