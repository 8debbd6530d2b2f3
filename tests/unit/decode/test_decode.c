/* Random numbers, the sampler and stop strings, against values computed by hand. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tests/unit/check.h"
#include "decode/text_streamer.h"
#include "decode/sample/rng.h"
#include "decode/sample/sampler.h"
#include "text/import/tok_build.h"
#include "text/tokenizer/tokenizer.h"

/* Known answers published with the generator (Random123, kat_vectors). */
static void test_philox(void)
{
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        uint32_t out[4];
        philox4x32(known[i].counter, known[i].key, out);
        check(memcmp(out, known[i].out, sizeof out) == 0, "philox vector %zu", i);
    }
    double sum = 0;
    for (uint32_t i = 0; i < 10000; i++) {
        const double u = rng_uniform(7, 3, i, 0);
        check(u >= 0 && u < 1, "draw %u is %g", i, u);
        sum += u;
    }
    /* The standard deviation of the mean is 0.0029. */
    check(near(sum / 10000, 0.5, 0.012), "the mean of 10000 draws is %g", sum / 10000);
    check(rng_uniform(1, 0, 0, 0) != rng_uniform(2, 0, 0, 0) &&
              rng_uniform(1, 0, 0, 0) != rng_uniform(1, 1, 0, 0) &&
              rng_uniform(1, 0, 0, 0) != rng_uniform(1, 0, 1, 0) &&
              rng_uniform(1, 0, 0, 0) != rng_uniform(1, 0, 0, 1),
          "a component of the key makes no difference");
}

/* Logits of the probabilities .1 .2 .3 .4: ids in order of rank are 3 2 1 0. */
static const float logits[4] = {-2.3025851f, -1.6094379f, -1.2039728f, -0.9162907f};

static void test_one(const char *what, struct sampler_options options, const double *want, size_t n)
{
    struct sampler sampler;
    struct err err;
    if (options.repeat_penalty == 0)
        options.repeat_penalty = 1;
    if (!check(sampler_open(&sampler, &options, 4, &err) == 0, "%s", what))
        return;
    enum { DRAWS = 4000 };
    size_t drawn[4] = {0};
    for (uint32_t i = 0; i < DRAWS; i++) {
        sampler_begin(&sampler, &options, 1, 2, i);
        drawn[sampler_sample(&sampler, logits, NULL, 0)]++;
    }
    check(sampler.n == n, "%s: %zu candidates, %zu wanted", what, sampler.n, n);
    for (size_t i = 0; i < n && i < sampler.n; i++) {
        check(sampler.candidate[i].id == 3 - i && near(sampler.candidate[i].p, want[i], 1e-6),
              "%s: candidate %zu is %u %g", what, i, sampler.candidate[i].id, sampler.candidate[i].p);
        /* four standard deviations are 0.032 at most */
        check(near((double)drawn[3 - i] / DRAWS, want[i], 0.032), "%s: %zu of %d draws are %zu", what,
              drawn[3 - i], DRAWS, 3 - i);
    }
    sampler_close(&sampler);
}

static void test_sampler(void)
{
    test_one("all", (struct sampler_options){.temp = 1, .top_p = 1}, (double[]){.4, .3, .2, .1}, 4);
    test_one("top-k 3", (struct sampler_options){.temp = 1, .top_p = 1, .top_k = 3},
             (double[]){4 / 9., 3 / 9., 2 / 9.}, 3);
    test_one("top-k 99", (struct sampler_options){.temp = 1, .top_p = 1, .top_k = 99},
             (double[]){.4, .3, .2, .1}, 4);
    test_one("top-p 0.65", (struct sampler_options){.temp = 1, .top_p = .65},
             (double[]){4 / 7., 3 / 7.}, 2);
    test_one("top-p 0", (struct sampler_options){.temp = 1, .top_p = 0}, (double[]){1}, 1);
    test_one("min-p 0.26", (struct sampler_options){.temp = 1, .top_p = 1, .min_p = .26},
             (double[]){4 / 9., 3 / 9., 2 / 9.}, 3);
    test_one("min-p 1", (struct sampler_options){.temp = 1, .top_p = 1, .min_p = 1}, (double[]){1}, 1);
    /* Temperature 0.5 squares the odds: 16 9 4 1. */
    test_one("temp 0.5", (struct sampler_options){.temp = .5, .top_p = 1},
             (double[]){16 / 30., 9 / 30., 4 / 30., 1 / 30.}, 4);
    /* top-k comes first: of 4/9 3/9 2/9 the first two reach 0.75; temperature comes last. */
    test_one("top-k 3, top-p 0.75, temp 0.5",
             (struct sampler_options){.temp = .5, .top_p = .75, .top_k = 3},
             (double[]){16 / 25., 9 / 25.}, 2);
    test_one("greedy", (struct sampler_options){.temp = 0, .top_p = 1}, (double[]){1}, 1);
}

static void test_penalty(void)
{
    /* Penalty 2: 4 becomes 2, -1 becomes -2; older tokens do not change; repetition counts once. */
    const float own[4] = {4, 3, -1, -1.5f};
    const uint32_t history[] = {1, 0, 0};
    struct sampler sampler;
    struct err err;
    const struct sampler_options options = {.top_p = 1, .repeat_penalty = 2, .repeat_last_n = 2};
    if (!check(sampler_open(&sampler, &options, 4, &err) == 0, "open"))
        return;
    check(sampler_sample(&sampler, own, history, 3) == 1, "the penalized token was chosen");
    check(sampler_sample(&sampler, own, NULL, 0) == 0, "a penalty without history");
    check(near(sampler.candidate[0].logit, 4, 0), "logit without history");
    const uint32_t negative[] = {2};
    const float low[4] = {-9, -9, -1, -1.5f};
    check(sampler_sample(&sampler, low, negative, 1) == 3, "a negative logit was not lowered");
    sampler_close(&sampler);
    struct candidate best[3];
    const float ties[5] = {1, 3, 3, 2, 3};
    top_logits(ties, 5, 3, best);
    check(best[0].id == 1 && best[1].id == 2 && best[2].id == 4, "ties go to the lowest id");
    check(near(log_sum_exp(logits, 4), 0, 1e-6), "log-sum-exp of probabilities");
}

/* Biases are added before penalties are applied. */
static void test_biases(void)
{
    static const struct logit_bias biases[] = {{2, 3}, {2, 1}, {0, -5}, {9, 1}};
    const float own[4] = {4, 3, -1, -1.5f};
    const uint32_t history[] = {3, 1, 2, 1, 0, 1};
    const struct sampler_options all = {.top_p = 1,
                                        .repeat_penalty = 2,
                                        .repeat_last_n = 5,
                                        .presence_penalty = 0.25,
                                        .frequency_penalty = 0.5,
                                        .bias = biases,
                                        .n_biases = ARRAY_LEN(biases)};
    /* 4 - 5 = -1, doubled, - 0.75; 3 halved, - 0.25 - 3 * 0.5; -1 + 4 = 3, halved, - 0.75; 3 is
     * outside the history considered. */
    static const float want[] = {-2.75f, -0.25f, 0.75f, -1.5f};
    struct sampler sampler;
    struct err err;
    if (!check(sampler_open(&sampler, &all, 4, &err) == 0, "open"))
        return;
    for (int turn = 0; turn < 2; turn++) { /* the counts must be zero again */
        const float *got = sampler_adjusted(&sampler, own, history, ARRAY_LEN(history));
        for (size_t i = 0; i < 4; i++)
            check(near(got[i], want[i], 1e-6), "logit %zu is %g, %g wanted", i, got[i], want[i]);
    }
    check(sampler_sample(&sampler, own, history, ARRAY_LEN(history)) == 2, "the best is not chosen");
    const float *got = sampler_adjusted(&sampler, own, NULL, 0);
    check(near(got[0], -1, 0) && near(got[1], 3, 0) && near(got[2], 3, 0), "biases without history");
    sampler.options = (struct sampler_options){.repeat_penalty = 1, .repeat_last_n = SIZE_MAX};
    check(sampler_adjusted(&sampler, own, history, 6) == own, "no penalty or bias is set");
    /* Each penalty by itself; a negative one makes a repetition more likely. */
    sampler.options.presence_penalty = 0.5;
    check(near(sampler_adjusted(&sampler, own, history, 6)[1], 2.5, 1e-6), "presence");
    sampler.options.presence_penalty = 0;
    sampler.options.frequency_penalty = -0.5;
    check(near(sampler_adjusted(&sampler, own, history, 6)[1], 4.5, 1e-6), "frequency");
    sampler.options.repeat_last_n = 0;
    check(sampler_adjusted(&sampler, own, history, 6) == own, "a history of 0 tokens");
    sampler_close(&sampler);
}

/* LOGIT_BIAS_NEVER holds at any temperature and penalty, and gives no NaN if it applies to all. */
static void test_never(void)
{
    static const struct logit_bias biases[] = {{3, LOGIT_BIAS_NEVER},
                                               {3, 1e6f},
                                               {2, LOGIT_BIAS_NEVER},
                                               {1, LOGIT_BIAS_NEVER},
                                               {0, LOGIT_BIAS_NEVER}};
    const uint32_t history[] = {3, 2, 1, 0};
    struct sampler_options options = {.temp = 1e9,
                                      .top_p = 1,
                                      .repeat_penalty = 1e3,
                                      .repeat_last_n = 4,
                                      .bias = biases,
                                      .n_biases = 3};
    struct sampler sampler;
    struct err err;
    if (!check(sampler_open(&sampler, &options, 4, &err) == 0, "open"))
        return;
    for (uint32_t i = 0; i < 100; i++) {
        sampler_begin(&sampler, &options, 1, 2, i);
        check(sampler_sample(&sampler, logits, history, 4) < 2, "a forbidden token was sampled");
    }
    sampler.options.n_biases = 5;
    sampler_sample(&sampler, logits, history, 4);
    for (size_t i = 0; i < sampler.n; i++)
        check(isfinite(sampler.candidate[i].p), "all are forbidden: probability %g",
              sampler.candidate[i].p);
    sampler_close(&sampler);
}

/* Stop strings, with one token per byte: the text that may be printed after each token. */
static void test_stops(void)
{
    static const struct {
        const char *text, *stop[2], *ready;
        bool stopped;
    } known[] = {
        {"hello world", {"world", NULL}, "hello ", true},
        {"hello worl", {"world", NULL}, "hello worl", false},
        {"aaaab", {"aab", NULL}, "aa", true},
        {"abcabd", {"abd", "zz"}, "abc", true},
        {"xay", {"ay", "xa"}, "", true},
        {"\xc3\xa9!", {"!", NULL}, "\xc3\xa9", true},
        {"\xc3", {NULL, NULL}, "\xef\xbf\xbd", false},
        {"abc", {"", NULL}, "abc", false},
    };
    struct buf blob = {0};
    struct tokenizer *tok;
    struct err err;
    if (!check(tokenizer_build_bytes(256, &blob, &err) == 0 &&
                   tokenizer_open(&tok, blob.data, blob.len, &err) == 0,
               "tokenizer: %s", err.text))
        return;
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        struct text_streamer e;
        char *stop[2] = {(char *)(uintptr_t)known[i].stop[0], (char *)(uintptr_t)known[i].stop[1]};
        text_streamer_init(
            &e, tok, &(struct gen_request){.stop = {stop, (stop[0] != NULL) + (stop[1] != NULL)}});
        const size_t len = strlen(known[i].ready);
        for (const char *at = known[i].text; *at && !e.stopped; at++) {
            check(text_streamer_add(&e, (unsigned char)*at, &err) == 0, "add");
            check(e.ready <= len && (!e.ready || memcmp(e.text.data, known[i].ready, e.ready) == 0),
                  "\"%s\": too much is ready", known[i].text);
        }
        check(text_streamer_finish(&e, false, &err) == 0 && e.ready == len &&
                  e.stopped == known[i].stopped &&
                  (!len || memcmp(e.text.data, known[i].ready, len) == 0),
              "\"%s\" gave \"%.*s\"", known[i].text, (int)e.ready, e.text.data);
        text_streamer_release(&e);
    }
    tokenizer_free(tok);
    buf_release(&blob);
}

int main(void)
{
    test_philox();
    test_sampler();
    test_penalty();
    test_biases();
    test_never();
    test_stops();
    return check_result();
}
