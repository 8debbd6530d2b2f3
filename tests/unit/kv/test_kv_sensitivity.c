/* Costs of types of KV entries: files, and the choice within a budget, whose results are calculated by hand. */
#include <math.h>
#include <string.h>

#include "kv/kv_sensitivity.h"
#include "tests/unit/check.h"

static const struct hash model_id = {{0xab}};

#define HEAD                                                                                           \
    "version 1\nmodel_id ab00000000000000000000000000000000000000000000000000000000000000\n"           \
    "tokens 9\nprobe q4\n"
#define TYPES "type.q8_channel 0.01 0.02\ntype.q4_1 0.1 0.04\n"

static int parse(struct kv_sensitivity *s, const char *text, struct err *err)
{
    const struct kv_shape shape =
        kv_shape_uniform(2, (struct kv_sizes){.kv_heads = 1, .head_dim = 32}, 64, DTYPE_F32);
    return kv_sensitivity_parse(s, text, strlen(text), "costs", &shape, &model_id, err);
}

/* Entries of 32 elements have 128 bytes in f32, 36 in q8, 20 in q4. Layer 0 has 3/4 of the cost of keys and 1/4 of that
 * of values, layer 1 the others. Of the first changes, both to q8, layer 0 saves 184 bytes for 0.0125, layer 1 for 0.0175; then
 * values at 4 bits save 16 bytes for 0.005 and 0.015, keys for 0.0675 and 0.0225. */
static void test_choice(void)
{
    static const struct {
        double budget, cost;
        enum dtype k0, v0, k1, v1;
        const char *text;
    } cases[] = {
        {0, 0, DTYPE_F32, DTYPE_F32, DTYPE_F32, DTYPE_F32, "f32"},
        {0.0126, 0.0125, DTYPE_Q8_CHANNEL, DTYPE_Q8_CHANNEL, DTYPE_F32, DTYPE_F32,
         "0:q8_channel 1:f32"},
        {0.0301, 0.03, DTYPE_Q8_CHANNEL, DTYPE_Q8_CHANNEL, DTYPE_Q8_CHANNEL, DTYPE_Q8_CHANNEL,
         "q8_channel"},
        {0.04, 0.035, DTYPE_Q8_CHANNEL, DTYPE_Q4_1, DTYPE_Q8_CHANNEL, DTYPE_Q8_CHANNEL,
         "0:k=q8_channel,v=q4_1 1:q8_channel"},
        {0.0501, 0.05, DTYPE_Q8_CHANNEL, DTYPE_Q4_1, DTYPE_Q8_CHANNEL, DTYPE_Q4_1,
         "k=q8_channel,v=q4_1"},
        {0.0726, 0.0725, DTYPE_Q8_CHANNEL, DTYPE_Q4_1, DTYPE_Q4_1, DTYPE_Q4_1,
         "0:k=q8_channel,v=q4_1 1:q4_1"},
        {9, 0.14, DTYPE_Q4_1, DTYPE_Q4_1, DTYPE_Q4_1, DTYPE_Q4_1, "q4_1"},
    };
    const struct kv_shape shape =
        kv_shape_uniform(2, (struct kv_sizes){.kv_heads = 1, .head_dim = 32}, 64, DTYPE_F32);
    struct kv_sensitivity s;
    struct err err;
    if (!check(parse(&s, HEAD TYPES "1 1 3\n0 3 1\n", &err) == 0, "%s", err.text))
        return;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct kv_types types[2];
        const struct cache_types all = {.n = 2, .layer = types};
        AUTO(buf_release) struct buf text = {0};
        double cost;
        check(kv_sensitivity_choose(&s, &shape, cases[i].budget, types, &cost, &err) == 0 &&
                  fabs(cost - cases[i].cost) < 1e-9 && types[0].k == cases[i].k0 &&
                  types[0].v == cases[i].v0 && types[1].k == cases[i].k1 && types[1].v == cases[i].v1,
              "budget %g: cost %g, types %d %d %d %d", cases[i].budget, cost, types[0].k, types[0].v,
              types[1].k, types[1].v);
        check(cache_types_add(&text, &all, &err) == 0 && strcmp(buf_text(&text), cases[i].text) == 0,
              "budget %g: %s", cases[i].budget, buf_text(&text));
    }
    kv_sensitivity_release(&s);
}

static void test_files(void)
{
    static const struct {
        const char *text, *error;
    } cases[] = {
        {HEAD TYPES "0 1 2\n", "layer 1 is missing"},
        {HEAD TYPES "0 1 2\n0 1 2\n1 1 2\n", "a second time"},
        {HEAD TYPES "0 1 2\n1 1 2\n2 1 2\n", "no layer of 2"},
        {HEAD TYPES "0 1 -2\n1 1 2\n", "two costs"},
        {HEAD TYPES "0 1 nan\n1 1 2\n", "two costs"},
        {HEAD TYPES "0 1\n1 1 2\n", "two costs"},
        {HEAD "type.q9 1 1\n0 1 2\n1 1 2\n", "no cache type"},
        {HEAD TYPES "type.q4_1 1 1\n0 1 2\n1 1 2\n", "type.q4_1"},
        {HEAD "0 1 2\n1 1 2\n", "no types"},
        {HEAD TYPES "0 1 2\n1 1 2\nother 1 2\n", "no cache type"},
        {"version 2\n", "version"},
        {"version 1\nmodel_id cd\n", "another model"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct kv_sensitivity s;
        struct err err;
        check(parse(&s, cases[i].text, &err) < 0 && strstr(err.text, cases[i].error), "case %zu: %s", i,
              err.text);
    }
}

int main(void)
{
    test_choice();
    test_files();
    return check_result();
}
