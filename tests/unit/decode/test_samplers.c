/* Samplers in any order give the probabilities of tests/fixtures/samplers.jsonl, and its draws. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "decode/sample/sampler.h"
#include "tests/unit/check.h"

enum { MOST = 64 };

static double setting(const json_t *options, const char *name, double otherwise)
{
    const json_t *value = json_object_get(options, name);
    return value ? json_number_value(value) : otherwise;
}

static struct sampler_options options_of(const json_t *line)
{
    const json_t *given = json_object_get(line, "options");
    struct err err;
    struct sampler_options o = {
        .temp = setting(given, "temp", 1),
        .top_k = (size_t)setting(given, "top_k", 0),
        .top_p = setting(given, "top_p", 1),
        .min_p = setting(given, "min_p", 0),
        .top_n_sigma = setting(given, "top_n_sigma", 0),
        .typical_p = setting(given, "typical_p", 1),
        .xtc_probability = setting(given, "xtc_probability", 0),
        .xtc_threshold = setting(given, "xtc_threshold", 0),
        .dynatemp_range = setting(given, "dynatemp_range", 0),
        .dynatemp_exponent = setting(given, "dynatemp_exponent", 1),
        .dry_multiplier = setting(given, "dry_multiplier", 0),
        .dry_base = setting(given, "dry_base", 0),
        .dry_allowed_length = (size_t)setting(given, "dry_allowed_length", 0),
        .dry_last_n = (size_t)setting(given, "dry_last_n", 0),
        .mirostat = (size_t)setting(given, "mirostat", 0),
        .mirostat_tau = setting(given, "mirostat_tau", 0),
        .mirostat_eta = setting(given, "mirostat_eta", 0),
        .repeat_penalty = 1,
    };
    check(json_string_length(json_object_get(line, "order")) == 0 ||
              sampler_order_parse(json_string_value(json_object_get(line, "order")), &o.order, &err) ==
                  0,
          "the order");
    return o;
}

/* Number i of the case's key: seed, stream, position. */
static json_int_t number_at(const json_t *line, size_t i)
{
    return json_integer_value(json_array_get(json_object_get(line, "key"), i));
}

/* The draws, all and some: logarithms are needed for few of the candidates then. */
static void check_draws(const struct sampler *sampler, const json_t *line, size_t number)
{
    const json_t *want = json_object_get(line, "drawn");
    static const size_t some[] = {1, 3, MOST};
    for (size_t s = 0; s < ARRAY_LEN(some); s++) {
        struct draw drawn[MOST];
        const size_t n = sampler_draw(sampler, some[s], drawn);
        check(n == size_min(some[s], json_array_size(want)), "case %zu: %zu draws", number, n);
        for (size_t i = 0; i < n; i++)
            check(drawn[i].id == json_integer_value(json_array_get(want, i)),
                  "case %zu: draw %zu of %zu is token %u", number, i, n, drawn[i].id);
    }
}

static void check_case(const json_t *line, size_t number)
{
    const json_t *logits = json_object_get(line, "logits"), *want = json_object_get(line, "p");
    const size_t n = json_array_size(logits);
    const json_t *past = json_object_get(line, "history"),
                 *breakers = json_object_get(line, "breakers"), *after = json_object_get(line, "next");
    struct sampler_options options = options_of(line);
    uint64_t breaker = 0;
    uint32_t history[MOST];
    float x[MOST];
    struct sampler sampler;
    struct err err;
    for (size_t i = 0; i < n; i++)
        x[i] = (float)json_number_value(json_array_get(logits, i));
    for (size_t i = 0; i < json_array_size(past); i++)
        history[i] = (uint32_t)json_integer_value(json_array_get(past, i));
    for (size_t i = 0; i < json_array_size(breakers); i++)
        breaker |= (uint64_t)1 << json_integer_value(json_array_get(breakers, i));
    options.dry_breaker = &breaker;
    if (!check(sampler_open(&sampler, &options, n, &err) == 0, "%s", err.text))
        return;
    sampler_begin(&sampler, &options, (uint64_t)number_at(line, 0), (uint64_t)number_at(line, 1),
                  (uint32_t)number_at(line, 2));
    sampler.xtc_u = setting(line, "u", 0);
    sampler.mirostat_mu = setting(line, "mu", 0);
    sampler_candidates(&sampler, x, history, json_array_size(past));
    check_draws(&sampler, line, number);
    check(sampler.n == json_object_size(want), "case %zu: %zu candidates, %zu are expected", number,
          sampler.n, json_object_size(want));
    for (size_t i = 0; i < sampler.n; i++) {
        char id[16];
        snprintf(id, sizeof id, "%u", sampler.candidate[i].id);
        check(near(sampler.candidate[i].p, setting(want, id, -1), 1e-5), "case %zu: token %s has %g",
              number, id, sampler.candidate[i].p);
    }
    for (size_t i = 0; i < json_array_size(after); i++) {
        const json_t *pair = json_array_get(after, i);
        const double mu =
            sampler_mirostat_next(&sampler, (uint32_t)json_integer_value(json_array_get(pair, 0)));
        check(near(mu, json_number_value(json_array_get(pair, 1)), 1e-5), "case %zu: state %g", number,
              mu);
    }
    sampler_close(&sampler);
}

/* DRY by hand: after "1 2 3 1 2", token 3 would continue a repetition of 2 tokens, and nothing else does;
 * greedy decoding avoids it, unless token 2 is a breaker or the history is shorter. */
static void check_dry(void)
{
    static const uint32_t history[] = {1, 2, 3, 1, 2};
    static const float logits[] = {0, 1, 2, 4, 3.5F};
    static const uint64_t breaker = 1 << 2;
    struct sampler_options o = {.top_p = 1,
                                .repeat_penalty = 1,
                                .dry_multiplier = 1,
                                .dry_base = 2,
                                .dry_allowed_length = 2,
                                .dry_last_n = SIZE_MAX};
    struct sampler sampler;
    struct err err;
    if (!check(sampler_open(&sampler, &o, ARRAY_LEN(logits), &err) == 0, "%s", err.text))
        return;
    check(near(sampler_adjusted(&sampler, logits, history, 5)[3], 3, 1e-6), "a penalty of 1");
    check(sampler_sample(&sampler, logits, history, 5) == 4, "greedy");
    sampler.options.dry_allowed_length = 1;
    check(near(sampler_adjusted(&sampler, logits, history, 5)[3], 2, 1e-6), "a penalty of 2");
    sampler.options.dry_allowed_length = 3;
    check(sampler_sample(&sampler, logits, history, 5) == 3, "a shorter repetition");
    sampler.options.dry_allowed_length = 2;
    sampler.options.dry_last_n = 4;
    check(sampler_sample(&sampler, logits, history, 5) == 3, "a shorter history");
    sampler.options.dry_last_n = SIZE_MAX;
    sampler.options.dry_breaker = &breaker;
    check(sampler_sample(&sampler, logits, history, 5) == 3, "a breaker");
    sampler_close(&sampler);
}

static void check_lists(void)
{
    static const char *const wrong[] = {"",      "top_k;", ";top_k", "top_k;;top_p", "top_k;top_k",
                                        "top-k", "dr"};
    struct sampler_order order;
    struct err err;
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        check(sampler_order_parse(wrong[i], &order, &err) < 0, "\"%s\"", wrong[i]);
}

int main(int argc, char **argv)
{
    FILE *file = argc > 1 ? fopen(argv[1], "r") : NULL;
    json_error_t why;
    json_t *line;
    size_t n = 0;
    if (!check(file != NULL, "usage: test_samplers samplers.jsonl"))
        return check_result();
    while ((line = json_loadf(file, JSON_DISABLE_EOF_CHECK, &why))) {
        check_case(line, ++n);
        json_decref(line);
    }
    fclose(file);
    check(n >= 110, "%zu cases", n);
    check_dry();
    check_lists();
    return check_result();
}
