/* The first members of receipts: written from a request, and read into one that is replayed. */
#include "serve/receipt_json.h"

#include "base/number.h"
#include "base/text_util.h"
#include "model/lora/lora.h"
#include "quant/cache_types.h"

enum { VERSION = 1 };

int receipt_text(const json_t *receipt, struct buf *text, struct err *err)
{
    return json_append(receipt, JSON_COMPACT | JSON_REAL_PRECISION(17), text, err);
}

json_t *receipt_ids(const struct ids *ids, struct err *err)
{
    json_t *list = json_array();
    int rc = list ? 0 : err_no_memory(err, "token ids");
    for (size_t i = 0; i < ids->len && rc == 0; i++)
        rc = json_push(list, json_integer(ids->id[i]), err);
    return json_or_null(list, rc, err);
}

static struct receipt_settings receipt_settings_of(const struct session *session)
{
    const struct session_options *o = session_options(session);
    struct receipt_settings s = {.context = o->context};
    snprintf(s.precision, sizeof s.precision, "%s", precision_name(o->cpu.precision));
    snprintf(s.cache_type, sizeof s.cache_type, "%s", cache_types_format(&o->kv_types).text);
    return s;
}

/* ---- writing ---- */

static json_t *text_json(const char *name, const char *text, size_t len, struct err *err)
{
    json_t *value = json_stringn(text, len);
    return value ? value
                 : (err_set(err, "\"%s\" is not valid UTF-8, which a receipt cannot hold", name), NULL);
}

static int put_stops(json_t *object, const char *name, const struct stop_strings *stop, struct err *err)
{
    json_t *list = json_array(), *text;
    int rc = json_put(object, name, list, err);
    for (size_t i = 0; i < stop->n && rc == 0; i++) {
        text = text_json(name, stop->text[i], strlen(stop->text[i]), err);
        rc = text ? json_push(list, text, err) : -1;
    }
    return rc;
}

static int put_biases(json_t *object, const struct sampler_options *o, struct err *err)
{
    json_t *biases = json_object();
    int rc = json_put(object, "logit_bias", biases, err);
    for (size_t i = 0; i < o->n_biases && rc == 0; i++) {
        char id[16];
        snprintf(id, sizeof id, "%u", o->bias[i].id);
        rc = json_put(biases, id,
                      o->bias[i].bias == LOGIT_BIAS_NEVER ? json_false() : json_real(o->bias[i].bias),
                      err);
    }
    return rc;
}

/* The list of samplers, for which options and snapshots have a text. */
static int put_order(json_t *object, const struct sampler_order *order, struct err *err)
{
    char text[128], *rest = text;
    json_t *list = json_array();
    int rc = json_put(object, "samplers", list, err);
    sampler_order_text(order, text, sizeof text);
    for (char *name; rc == 0 && (name = strsep(&rest, ";"));)
        rc = json_push(list, json_string(name), err);
    return rc;
}

static int put_sampling(json_t *object, const struct sampler_options *o, struct err *err)
{
    struct sampler_options used = *o;
    if (!dry_is_on(o))
        used.dry_text = NULL;
    AUTO(json_auto) json_t *members = sampling_pack(&used, err);
    const struct sampler_order order = sampler_order_of(o);
    if (!members)
        return -1;
    json_object_del(members, sampling_params[SAMPLING_mirostat_mu].name); /* not in requests */
    return json_object_update(object, members) < 0 ? err_no_memory(err, "sampling parameters")
           : put_biases(object, o, err) < 0        ? -1
                                                   : put_order(object, &order, err);
}

static int put_constraint(json_t *object, const struct serve *serve, const struct gen_request *request,
                          struct err *err)
{
    static const char *const names[] = {[CONSTRAINT_JSON_SCHEMA] = "json_schema",
                                        [CONSTRAINT_JSON_OBJECT] = "response_format",
                                        [CONSTRAINT_GRAMMAR] = "grammar",
                                        [CONSTRAINT_REGEX] = "regex",
                                        [CONSTRAINT_CHOICE] = "choice"};
    json_t *value;
    if (!request->constraint)
        return 0;
    const struct constraint_source from =
        constraint_cache_source(serve->constraints, request->constraint);
    const char *name = names[from.kind];
    if (from.kind == CONSTRAINT_JSON_OBJECT)
        return json_put(object, name, json_pack("{s:s}", "type", "json_object"), err);
    if (from.kind == CONSTRAINT_GRAMMAR || from.kind == CONSTRAINT_REGEX)
        value = text_json(name, from.text, from.len, err);
    else if (json_parse(from.text, from.len, name, &value, err) < 0)
        value = NULL;
    return value ? json_put(object, name, value, err) : -1;
}

/* The factors of all adapters that the run has. */
static int put_adapters(json_t *object, const struct loras *loras, const float *factor, struct err *err)
{
    json_t *list = loras && loras->n ? json_array() : NULL;
    int rc = list ? json_put(object, "lora", list, err) : 0;
    for (size_t i = 0; list && i < loras->n && rc == 0; i++)
        rc = json_push(
            list, json_pack("{s:I, s:f}", "id", (json_int_t)i, "scale", factor ? factor[i] : 1.0), err);
    return rc;
}

/* The request as a line for --jsonl would have it, with all of its settings. */
static json_t *request_json(const struct serve *serve, const struct gen_request *g, struct err *err)
{
    const struct sampler_options *sampling = g->sampling ? g->sampling : &serve->options.sampling;
    json_t *object = json_object();
    int rc = object ? 0 : err_no_memory(err, "a request");
    if (rc == 0)
        rc = json_put(object, "ids", receipt_ids(g->ids, err), err);
    if (rc == 0)
        rc =
            json_put(object, "n", g->n == GENERATE_NO_LIMIT ? json_integer(-1) : json_whole(g->n), err);
    if (rc == 0 && put_sampling(object, sampling, err) == 0 &&
        put_stops(object, "stop", &g->stop, err) == 0 &&
        json_put(object, "ignore_eos", json_boolean(g->ignore_eos), err) == 0 &&
        json_put(object, "skip_special_tokens", json_boolean(!g->keep_special), err) == 0 &&
        put_constraint(object, serve, g, err) == 0)
        rc = put_adapters(object, serve->model->loras, g->lora_factor, err);
    else
        rc = -1;
    return json_or_null(object, rc, err);
}

/* Identifies the model and the adapters that a request uses. */
static struct hash model_of(const struct serve *serve, const float *lora_factor)
{
    return loras_entries_id(serve->model->loras, lora_factor, &serve->model->file.model_id);
}

json_t *receipt_head(const struct serve *serve, const struct gen_request *g, struct err *err)
{
    const struct receipt_settings s = receipt_settings_of(serve->session);
    const struct sampler_options *sampling = g->sampling ? g->sampling : &serve->options.sampling;
    const struct hash model = model_of(serve, g->lora_factor);
    const struct ids ends = {.id = (uint32_t *)(uintptr_t)g->turn_end.id, .len = g->turn_end.n_ids};
    char hex[2 * HASH_BYTES + 1];
    json_t *request = request_json(serve, g, err);
    if (!request)
        return NULL;
    hash_hex(&model, HASH_BYTES, hex);
    json_t *receipt = json_pack("{s:i, s:s, s:s, s:s, s:I, s:o, s:o, s:o}", "receipt", VERSION, "model",
                                hex, "precision", s.precision, "cache_type", s.cache_type, "context",
                                (json_int_t)s.context, "seed", json_whole(g->seed), "stream",
                                json_whole(g->stream), "request", request);
    if (!receipt)
        return err_no_memory(err, "a receipt"), NULL;
    const int rc =
        json_put(receipt, "end_ids", receipt_ids(&ends, err), err) < 0 ||
                put_stops(receipt, "end_strings", &g->turn_end.stop, err) < 0 ||
                json_put(receipt, "end_repetition", json_boolean(g->end_repetition), err) < 0 ||
                json_put(receipt, "hold_partial_utf8", json_boolean(g->hold_partial_utf8), err) < 0 ||
                json_put(receipt, "mirostat_mu", json_real(sampling->mirostat_mu), err) < 0
            ? -1
            : 0;
    return json_or_null(receipt, rc, err);
}

/* ---- reading ---- */

/* The members of a receipt; those of a signature may be missing. */
static const struct {
    const char *name;
    json_type type;
    bool optional;
} members[] = {
    {"receipt", JSON_INTEGER, false},     {"model", JSON_STRING, false},
    {"precision", JSON_STRING, false},    {"cache_type", JSON_STRING, false},
    {"context", JSON_INTEGER, false},     {"seed", JSON_INTEGER, false},
    {"stream", JSON_INTEGER, false},      {"request", JSON_OBJECT, false},
    {"end_ids", JSON_ARRAY, false},       {"end_strings", JSON_ARRAY, false},
    {"end_repetition", JSON_TRUE, false}, {"hold_partial_utf8", JSON_TRUE, false},
    {"mirostat_mu", JSON_REAL, false},    {"tokens", JSON_ARRAY, false},
    {"finish", JSON_STRING, false},       {"text", JSON_STRING, false},
    {"links", JSON_ARRAY, false},         {"chain", JSON_STRING, false},
    {"public_key", JSON_STRING, true},    {"signature", JSON_STRING, true},
};

/* A whole number that may be written as a string, as jansson's integers have 63 bits. */
static bool read_whole(const json_t *value, uint64_t *whole)
{
    size_t number = (size_t)json_integer_value(value);
    const char *digits = json_string_value(value);
    const bool good =
        digits ? parse_size(digits, &number) : json_is_integer(value) && json_integer_value(value) >= 0;
    *whole = number;
    return good;
}

static bool is_of_type(const json_t *value, json_type type)
{
    uint64_t ignored;
    return type == JSON_TRUE      ? json_is_boolean(value)
           : type == JSON_REAL    ? json_is_number(value) && fabs(json_number_value(value)) <= 1e9
           : type == JSON_INTEGER ? read_whole(value, &ignored)
                                  : json_typeof(value) == type;
}

static int check_members(const json_t *receipt, struct err *err)
{
    size_t n = 0;
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        const json_t *value = json_object_get(receipt, members[i].name);
        n += value != NULL;
        if (!value && !members[i].optional)
            return err_set(err, "\"%s\" is missing", members[i].name);
        if (value && !is_of_type(value, members[i].type))
            return err_set(err, "\"%s\" is %s, which no receipt has", members[i].name,
                           json_type_name(value));
    }
    const uint64_t version = (uint64_t)json_integer_value(json_object_get(receipt, "receipt"));
    if (version != VERSION)
        return err_set(err, "is a receipt of version %llu, this program knows version %d",
                       (unsigned long long)version, VERSION);
    return n == json_object_size(receipt)
               ? 0
               : err_set(err, "has %zu members that no receipt has", json_object_size(receipt) - n);
}

static json_t *parse_receipt(const char *text, size_t len, struct err *err)
{
    json_t *receipt;
    const int rc = request_line(text, len, &receipt, err) < 0 ? -1 : check_members(receipt, err);
    return rc < 0 ? json_decref(receipt), NULL : receipt;
}

static int read_settings(struct receipt_settings *s, const json_t *receipt, struct err *err)
{
    const char *precision = json_string_value(json_object_get(receipt, "precision")),
               *cache_type = json_string_value(json_object_get(receipt, "cache_type"));
    *s = (struct receipt_settings){.context =
                                       (size_t)json_integer_value(json_object_get(receipt, "context"))};
    if (strlen(precision) >= sizeof s->precision || strlen(cache_type) >= sizeof s->cache_type)
        return err_set(err, "has no known precision and cache type");
    if (!s->context)
        return err_set(err, "\"context\" is 0, a number of tokens is expected");
    strcpy(s->precision, precision);
    strcpy(s->cache_type, cache_type);
    return 0;
}

int receipt_first(struct receipt_settings *settings, const char *text, size_t len, struct err *err)
{
    const char *end = memchr(text, '\n', len);
    AUTO(json_auto) json_t *receipt = parse_receipt(text, end ? (size_t)(end - text) : len, err);
    return receipt ? read_settings(settings, receipt, err) : -1;
}

/* Fails if the session computes other logits than those of the receipt. */
static int check_settings(const struct serve *serve, const json_t *receipt, struct err *err)
{
    const struct receipt_settings run = receipt_settings_of(serve->session);
    struct receipt_settings own;
    if (read_settings(&own, receipt, err) < 0)
        return -1;
    return strcmp(own.precision, run.precision) != 0 || strcmp(own.cache_type, run.cache_type) != 0 ||
                   own.context != run.context
               ? err_set(
                     err,
                     "was made with --precision %s, --cache-type %s and -c %zu, the first of the file "
                     "with %s, %s and %zu: verify it apart",
                     own.precision, own.cache_type, own.context, run.precision, run.cache_type,
                     run.context)
               : 0;
}

static int check_model(const struct serve *serve, const struct gen_request *g, const json_t *receipt,
                       struct err *err)
{
    const struct hash model = model_of(serve, g->lora_factor);
    const char *own = json_string_value(json_object_get(receipt, "model"));
    char hex[2 * HASH_BYTES + 1];
    hash_hex(&model, HASH_BYTES, hex);
    return strcmp(own, hex) == 0 ? 0
                                 : err_set(err, "is of model %s.., this one (-m, --lora) is %.16s..",
                                           excerpt_of(own, size_min(strlen(own), 16)).text, hex);
}

/* What ends a turn, besides the model's EOS. */
static int read_ends(struct replay *replay, struct gen_request *g, struct err *err)
{
    const json_t *strings = json_object_get(replay->receipt, "end_strings");
    const size_t n = json_array_size(strings);
    if (request_ids_of(json_object_get(replay->receipt, "end_ids"), &replay->ends, err) < 0)
        return err_prefix(err, "\"end_ids\"");
    if (!(replay->stop = mem_zalloc(n + 1, sizeof *replay->stop)))
        return err_no_memory(err, "%zu strings", n);
    for (size_t i = 0; i < n; i++) {
        const char *text = json_string_value(json_array_get(strings, i));
        if (!text || !*text)
            return err_set(err, "\"end_strings\": entry %zu is no text", i);
        replay->stop[i] = (char *)(uintptr_t)text;
    }
    g->turn_end = (struct turn_end){replay->ends.id, replay->ends.len, {replay->stop, n}};
    return 0;
}

static int read_tokens(const struct serve *serve, struct replay *replay, struct err *err)
{
    const size_t vocab = session_vocab(serve->session);
    if (request_ids_of(json_object_get(replay->receipt, "tokens"), &replay->expected, err) < 0)
        return err_prefix(err, "\"tokens\"");
    for (size_t i = 0; i < replay->expected.len; i++)
        if (replay->expected.id[i] >= vocab)
            return err_set(err, "\"tokens\": entry %zu is %u, outside the vocabulary of %zu", i,
                           replay->expected.id[i], vocab);
    return 0;
}

/* Reads the request itself as one of --jsonl. */
static int read_request(struct line_queue *queue, struct request_line *line,
                        const struct serve_input *input, const json_t *receipt, struct err *err)
{
    AUTO(buf_release) struct buf text = {0};
    if (receipt_text(json_object_get(receipt, "request"), &text, err) < 0)
        return -1;
    const struct serve_input request = {.json = text.data, .len = text.len, .number = input->number};
    if (request_line_prepare(queue, line, &request, err) < 0)
        return -1;
    return line->n_choices == 1 && !line->request.cancel
               ? 0
               : err_set(err, "\"request\" is for %zu answers, a receipt has one", line->n_choices);
}

int receipt_read(struct line_queue *queue, struct request_line *line, const struct serve_input *input,
                 struct err *err)
{
    struct replay *replay = line->replay = mem_zalloc(1, sizeof *replay);
    if (!replay)
        return err_no_memory(err, "a replay");
    const json_t *receipt = replay->receipt = parse_receipt(input->json, input->len, err);
    if (!receipt || check_settings(queue->serve, receipt, err) < 0 ||
        read_tokens(queue->serve, replay, err) < 0 ||
        read_request(queue, line, input, receipt, err) < 0)
        return -1;
    struct gen_request *g = &line->choice->gen;
    (void)read_whole(json_object_get(receipt, "seed"), &g->seed);
    (void)read_whole(json_object_get(receipt, "stream"), &g->stream);
    g->end_repetition = json_is_true(json_object_get(receipt, "end_repetition"));
    g->hold_partial_utf8 = json_is_true(json_object_get(receipt, "hold_partial_utf8"));
    g->expected = &replay->expected;
    line->request.sampling.mirostat_mu = json_number_value(json_object_get(receipt, "mirostat_mu"));
    return read_ends(replay, g, err) < 0 ? -1 : check_model(queue->serve, g, receipt, err);
}
