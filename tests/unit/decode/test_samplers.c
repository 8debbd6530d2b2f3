/* Samplers in any order give the probabilities of tests/fixtures/samplers.jsonl. */
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
        .repeat_penalty = 1,
    };
    check(sampler_order_parse(json_string_value(json_object_get(line, "order")), &o.order, &err) == 0,
          "the order");
    return o;
}

static void check_case(const json_t *line, size_t number)
{
    const json_t *logits = json_object_get(line, "logits"), *want = json_object_get(line, "p");
    const size_t n = json_array_size(logits);
    const struct sampler_options options = options_of(line);
    float x[MOST];
    struct sampler sampler;
    struct err err;
    for (size_t i = 0; i < n; i++)
        x[i] = (float)json_number_value(json_array_get(logits, i));
    if (!check(sampler_open(&sampler, &options, n, &err) == 0, "%s", err.text))
        return;
    sampler.xtc_u = setting(line, "u", 0);
    sampler_sample(&sampler, x, NULL, 0, 0.5);
    check(sampler.n == json_object_size(want), "case %zu: %zu candidates, %zu are expected", number,
          sampler.n, json_object_size(want));
    for (size_t i = 0; i < sampler.n; i++) {
        char id[16];
        snprintf(id, sizeof id, "%u", sampler.candidate[i].id);
        check(near(sampler.candidate[i].p, setting(want, id, -1), 1e-5), "case %zu: token %s has %g",
              number, id, sampler.candidate[i].p);
    }
    sampler_close(&sampler);
}

static void check_lists(void)
{
    static const char *const wrong[] = {"",      "top_k;", ";top_k", "top_k;;top_p", "top_k;top_k",
                                        "top-k", "dry"};
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
    check(n >= 50, "%zu cases", n);
    check_lists();
    return check_result();
}
