/* Requests and results as lines of JSON: every member by each of its names, errors, and failure of
 * any allocation. With the argument "members" it prints the table, for the test of the man page. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text_util.h"
#include "tests/unit/check.h"
#include "serve/request.h"
#include "serve/result.h"
#include "text/import/tok_build.h"

/* ---- reading ---- */

static int read_line(struct request *r, const char *line, bool lenient, struct err *err)
{
    if (request_open(r, line, strlen(line), lenient, err) < 0)
        return -1;
    r->gen = (struct gen_request){.n = 77, .seed = 5, .logprobs = 4, .keep_special = true};
    r->sampling = (struct sampler_options){.top_p = 0.5, .repeat_penalty = 1};
    return request_apply(r, err);
}

/* A valid value for each description of an expected value. */
static const char *value_for(const char *expected)
{
    static const char *const values[][2] = {
        {"any value", "{\"a\": [1]}"},
        {"a string or a list of token ids", "[4, 5]"},
        {"a string or", "[\"x\", \"yz\"]"},
        {"a string", "\"text\""},
        {"a list of token ids", "[4, 5]"},
        {"a list of adapters", "[\"tales\", 1, {\"id\": 0, \"scale\": -0.5}]"},
        {"a list of objects", "[{\"role\": \"user\", \"content\": \"x\"}]"},
        {"a whole number from 0 to 2", "2"},
        {"a whole number from 1 to 128", "3"},
        {"a whole number", "1"},
        {"a number", "0.25"},
        {"true or false", "true"},
        {"a JSON Schema", "{}"},
        {"a list of names of samplers", "[\"top_k\", \"temperature\"]"},
        {"a list of strings", "[\"one\", \"two\"]"},
        {"an object with type", "{\"type\": \"json_object\"}"},
        {"an object of", "{\"3\": -1.5, \"4\": false}"},
        {"an object", "{\"x\": 1}"},
        {"auto, none, required", "{\"type\": \"function\", \"function\": {\"name\": \"f\"}}"},
        {"hide, show or separate", "\"show\""},
    };
    for (size_t i = 0; i < ARRAY_LEN(values); i++)
        if (strncmp(expected, values[i][0], strlen(values[i][0])) == 0)
            return values[i][1];
    return "?";
}

/* All members of a request as text. */
static void describe_request(const struct request *r, char *text, size_t size)
{
    char *json[] = {json_dumps(r->id, JSON_ENCODE_ANY),
                    json_dumps(r->from, JSON_ENCODE_ANY),
                    r->prompt.text ? strdup(r->prompt.text) : NULL,
                    json_dumps(r->ids, JSON_ENCODE_ANY),
                    json_dumps(r->messages, JSON_ENCODE_ANY),
                    json_dumps(r->parse_special, JSON_ENCODE_ANY),
                    json_dumps(r->tools, JSON_ENCODE_ANY),
                    json_dumps(r->documents, JSON_ENCODE_ANY),
                    json_dumps(r->add_generation_prompt, JSON_ENCODE_ANY),
                    json_dumps(r->template_variables, JSON_ENCODE_ANY),
                    json_dumps(r->cancel, JSON_ENCODE_ANY),
                    json_dumps(r->lora, JSON_ENCODE_ANY),
                    json_dumps(r->prompt_ids, JSON_ENCODE_ANY),
                    json_dumps(r->continue_final_message, JSON_ENCODE_ANY),
                    json_dumps(r->parallel_tool_calls, JSON_ENCODE_ANY)};
    const struct sampler_options *s = &r->sampling;
    int at = 0;
    for (size_t i = 6; i < ARRAY_LEN(json); i++)
        at += snprintf(text + at, size - (size_t)at, "%s ", json[i] ? json[i] : "-");
    at += snprintf(
        text + at, size - (size_t)at, "%s %s %s %s %s %s n %zu seed %llu eos %d logprobs %zu %zu stop",
        json[0] ? json[0] : "-", json[1] ? json[1] : "-", json[2] ? json[2] : "-",
        json[3] ? json[3] : "-", json[4] ? json[4] : "-", json[5] ? json[5] : "-", r->gen.n,
        (unsigned long long)r->gen.seed, r->gen.ignore_eos, r->gen.logprobs, r->gen.prompt_logprobs);
    at += snprintf(text + at, size - (size_t)at, " %d %d %d %zu choices %zu", r->stream,
                   r->gen.keep_special, r->openai_logprobs, r->top_logprobs, r->n_choices);
    at += snprintf(text + at, size - (size_t)at, " answer %d %s %d %zu %s", r->answer.choice.kind,
                   r->answer.choice.name ? r->answer.choice.name : "-", r->answer.reasoning,
                   r->answer.budget, r->answer.last_words ? r->answer.last_words : "-");
    if (r->constraint_given)
        at += snprintf(text + at, size - (size_t)at, " constraint %d %s", r->constraint,
                       buf_text(&r->constraint_text));
    for (size_t i = 0; i < r->gen.stop.n; i++)
        at += snprintf(text + at, size - (size_t)at, " %s", r->gen.stop.text[i]);
    at += snprintf(text + at, size - (size_t)at, " sampling %g %zu %g %g %g %zu %g %g", s->temp,
                   s->top_k, s->top_p, s->min_p, s->repeat_penalty, s->repeat_last_n,
                   s->presence_penalty, s->frequency_penalty);
    at += snprintf(text + at, size - (size_t)at, " %g %g %g %g %g %g order %zu", s->top_n_sigma,
                   s->typical_p, s->xtc_probability, s->xtc_threshold, s->dynatemp_range,
                   s->dynatemp_exponent, s->order.n);
    at += snprintf(text + at, size - (size_t)at, " %g %g %zu %zu %zu %zu %g %g", s->dry_multiplier,
                   s->dry_base, s->dry_allowed_length, s->dry_last_n, r->n_breakers, s->mirostat,
                   s->mirostat_tau, s->mirostat_eta);
    for (size_t i = 0; i < s->n_biases; i++)
        at += snprintf(text + at, size - (size_t)at, " %u:%g", s->bias[i].id, (double)s->bias[i].bias);
    for (size_t i = 0; i < ARRAY_LEN(json); i++)
        free(json[i]);
}

/* All names of a member have the same effect, null has none, and an error names the member. */
static void test_names(void)
{
    struct member_doc doc;
    char unset[512], first[512], text[512], line[256];
    struct request r;
    struct err err;
    check(read_line(&r, "{}", false, &err) == 0, "{}: %s", err.text);
    describe_request(&r, unset, sizeof unset);
    request_close(&r);
    for (size_t i = 0; request_member(i, &doc); i++)
        for (size_t n = 0; doc.names[n]; n++) {
            snprintf(line, sizeof line, "{\"%s\": %s}", doc.names[n], value_for(doc.expected));
            check(read_line(&r, line, false, &err) == 0, "%s: %s", line, err.text);
            describe_request(&r, n ? text : first, sizeof text);
            check(strcmp(n ? text : unset, first) == (n ? 0 : strcmp(unset, first)), "%s", line);
            check(strcmp(first, unset) != 0, "%s sets nothing", line);
            request_close(&r);
            if (strcmp(doc.expected, "any value") == 0)
                continue;
            snprintf(line, sizeof line, "{\"%s\": null}", doc.names[n]);
            check(read_line(&r, line, false, &err) == 0, "%s: %s", line, err.text);
            describe_request(&r, text, sizeof text);
            check(strcmp(text, unset) == 0, "%s sets something", line);
            request_close(&r);
            snprintf(line, sizeof line, "\"%s\"", doc.names[n]);
            char wrong[300];
            snprintf(wrong, sizeof wrong, "{%s: %s}", line,
                     strncmp(doc.expected, "true or false", 13) && strcmp(doc.expected, "a JSON Schema")
                         ? "true"
                         : "\"x\"");
            check(read_line(&r, wrong, false, &err) < 0 && strncmp(err.text, line, strlen(line)) == 0 &&
                      strstr(err.text, doc.expected),
                  "%s: %s", wrong, err.text);
            request_close(&r);
        }
}

static void test_values(void)
{
    struct request r;
    struct err err;
    char text[512];
    check(
        read_line(&r,
                  "{\"n\": -1, \"repeat_last_n\": -1, \"top_k\": 9007199254740993, \"seed\": "
                  "9223372036854775807, "
                  "\"temp\": 2, \"logit_bias\": {\"0\": 1000000, \"4294967295\": false}, \"stop\": []}",
                  false, &err) == 0,
        "%s", err.text);
    describe_request(&r, text, sizeof text);
    check(r.gen.n == GENERATE_NO_LIMIT && r.sampling.repeat_last_n == SIZE_MAX &&
              r.sampling.top_k == 9007199254740993 && r.gen.seed == INT64_MAX &&
              r.sampling.bias[1].bias == LOGIT_BIAS_NEVER && r.sampling.bias[1].id == UINT32_MAX &&
              r.gen.stop.n == 0 && r.gen.stop.text && r.gen.sampling == &r.sampling,
          "%s", text);
    request_close(&r);
}

/* Lines, and a part of their error. */
static void test_errors(void)
{
    static const char *const lines[][2] = {
        {"", "the text ends"},
        {" \t\r", "the text ends"},
        {"{\"n\": 1} x", "not valid JSON"},
        {"[1]", "an array, an object is expected"},
        {"{\"n\": 1, \"n\": 2}", "duplicate"},
        {"{\"temprature\": 1}", "unknown member \"temprature\"; did you mean \"temperature\"?"},
        {"{\"maxtokens\": 1}", "\"max_tokens\"? (--lenient"},
        {"{\"tpo_k\": 1}", "\"top_k\""},
        {"{\"Prompt\": \"a\"}", "\"prompt\""},
        {"{\"n\\u001b[31m\": 1}", "\"n?[31m\""},
        {"{\"n\": 129, \"max_tokens\": 2}", "\"n\" is 129, a whole number from 1 to 128"},
        {"{\"max_completion_tokens\": 2, \"n\": 0}", "\"n\" is 0, a whole number from 1 to 128"},
        {"{\"max_tokens\": 2, \"n\": 2, \"n_cmpl\": 2}",
         "\"n\" and \"n_cmpl\" mean the same: give one of them"},
        {"{\"max_tokens\": 2, \"max_completion_tokens\": 2}", "mean the same: give one of them"},
        {"{\"n\": 1, \"n_predict\": 2}",
         "\"n\" and \"n_predict\" mean the same: give one of them (for several"},
        {"{\"lora\": [0, true]}", "\"lora\": entry 1 is no adapter"},
        {"{\"logprobs\": 2, \"top_logprobs\": 3}", "\"logprobs\" is a number beside \"top_logprobs\""},
        {"{\"logprobs\": \"all\"}", "\"logprobs\" is a string, true or false"},
        {"{\"stream\": 1}", "\"stream\" is 1, true or false"},
        {"{\"top_p\": 1.5}", "\"top_p\" is 1.5, a number from 0 to 1"},
        {"{\"n\": -2}", "\"n\" is -2, a whole number, -1 or more"},
        {"{\"max_tokens\": 2.5}", "\"max_tokens\" is 2.5, a whole number"},
        {"{\"top_k\": -1}", "\"top_k\" is -1"},
        {"{\"seed\": -2}", "\"seed\" is -2, a whole number from -1 to 2^64-1"},
        {"{\"logprobs\": 1001}", "from 0 to 1000"},
        {"{\"repeat_penalty\": 0}", "\"repeat_penalty\" is 0"},
        {"{\"ids\": [4294967296]}", "entry 0 is not a token id"},
        {"{\"stop\": [\"a\", 5]}", "an integer"},
        {"{\"stop\": \"\"}", "empty"},
        {"{\"stop\": \"a\\u0000b\"}", "zero character"},
        {"{\"logit_bias\": {\"king\": 1}}", "\"king\" is not a token id"},
        {"{\"logit_bias\": {\"4294967296\": 1}}", "not a token id"},
        {"{\"logit_bias\": {\"5\": true}}", "for token 5 a number from -1e+06 to 1e+06"},
        {"{\"logit_bias\": {\"5\": 1e7}}", "for token 5"},
        {"{\"logit_bias\": [5]}", "an array, an object"},
    };
    struct request r;
    struct err err;
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        check(read_line(&r, lines[i][0], false, &err) < 0 && strstr(err.text, lines[i][1]), "%s: %s",
              lines[i][0], err.text);
        request_close(&r);
    }
    check(read_line(&r, "{\"temprature\": 1, \"n\": 3}", true, &err) == 0 && r.gen.n == 3,
          "lenient: %s", err.text);
    request_close(&r);
    check(read_line(&r, "{\"temprature\": 1, \"n\": \"3\"}", true, &err) < 0, "lenient of values");
    request_close(&r);
    check(read_line(&r, "{\"n\": 4, \"max_tokens\": 9}", false, &err) == 0 && r.gen.n == 9 &&
              r.n_choices == 4,
          "several answers: %s", err.text);
    request_close(&r);
    check(read_line(&r, "{\"n\": 4, \"max_tokens\": null}", false, &err) == 0 && r.gen.n == 4 &&
              r.n_choices == 1,
          "no limit beside n: %s", err.text);
    request_close(&r);
    check(read_line(&r, "{\"max_tokens\": 9, \"n\": 1}", false, &err) == 0 && r.gen.n == 9,
          "one answer: %s", err.text);
    request_close(&r);
    check(read_line(&r, "{\"top_logprobs\": 3, \"logprobs\": true}", false, &err) == 0 &&
              r.openai_logprobs && r.gen.logprobs == 3 && r.top_logprobs == 3,
          "logprobs of OpenAI: %s", err.text);
    request_close(&r);
    check(read_line(&r, "{\"logprobs\": true}", false, &err) == 0 && r.gen.logprobs == 1 &&
              !r.top_logprobs,
          "logprobs without alternatives: %s", err.text);
    request_close(&r);
    check(read_line(&r, "{\"top_logprobs\": 3, \"logprobs\": false}", false, &err) == 0 &&
              !r.openai_logprobs && !r.gen.logprobs,
          "no logprobs: %s", err.text);
    request_close(&r);
    check(read_line(&r, "{\"n\": null, \"max_tokens\": 2}", false, &err) == 0 && r.gen.n == 2,
          "null: %s", err.text);
    request_close(&r);
}

static void test_words(void)
{
    static const struct {
        const char *a, *b;
        size_t apart;
    } known[] = {
        {"", "", 0},         {"top_k", "top_k", 0}, {"", "abc", 3},          {"top_k", "tpo_k", 1},
        {"seed", "sead", 1}, {"stop", "stops", 1},  {"kitten", "sitting", 3}};
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        check(edit_distance(known[i].a, known[i].b) == known[i].apart &&
                  edit_distance(known[i].b, known[i].a) == known[i].apart,
              "%s and %s are %zu apart", known[i].a, known[i].b, edit_distance(known[i].a, known[i].b));
    char longer[201], want[65];
    for (size_t shift = 0; shift < 3; shift++) { /* characters of 3 bytes, cut anywhere */
        memset(longer, 'a', sizeof longer);
        for (size_t i = shift; i + 3 < sizeof longer; i += 3)
            memcpy(longer + i, "\xe2\x82\xac", 3);
        longer[200] = 0;
        const size_t whole = shift + (61 - shift) / 3 * 3;
        snprintf(want, sizeof want, "%.*s..", (int)whole, longer);
        check(strcmp(excerpt_of(longer, 200).text, want) == 0, "shift %zu: %s", shift,
              excerpt_of(longer, 200).text);
    }
    check(strcmp(excerpt_of("a\0b\x1b\xc2\x9b", 6).text, "a?b???") == 0, "control characters");
    memset(longer, 0x80, 200);
    check(strcmp(excerpt_of(longer, 200).text, "..") == 0, "no character begins");
}

/* ---- failing allocations ---- */

static size_t allocations, allowed;
static bool all_later; /* not only one allocation fails, but all after it as well */

static void *failing_malloc(size_t size)
{
    const size_t n = allocations++;
    return n < allowed || (n > allowed && !all_later) ? malloc(size) : NULL;
}

static void use_failing_allocator(void) { json_set_alloc_funcs(failing_malloc, free); }

static struct tokenizer *tok;

/* A result with all members. */
static int write_result(struct buf *line, struct err *err)
{
    static const uint32_t ids[] = {404 % 256, 115, 468 % 256};
    static const struct logprob logprobs[] = {{1, -1}, {2, -2}, {3, -3}, {4, -4}, {5, -5}, {200, -6}};
    struct logprob prompts[] = {{65, NAN}, {0, NAN}, {200, -1.5f}, {66, -0.5f}};
    const struct gen_request request = {.seed = UINT64_MAX, .seed_drawn = true};
    const struct gen_result result = {.request = &request,
                                      .finish = FINISHED_ERROR,
                                      .error = &(struct err){"cut \xc3 and \x1b", ERR_FAILED},
                                      .ids = ids,
                                      .n_ids = 3,
                                      .n_prompt = 2,
                                      .text = "te\0xt",
                                      .text_len = 5,
                                      .logprobs = logprobs,
                                      .n_best = 1,
                                      .n_prompt_best = 1,
                                      .prompt_logprobs = prompts};
    return result_line(tok, "\"a\"", &result, (struct logprob_form){0}, line, err);
}

static int write_failure(struct buf *line, struct err *err)
{
    return failure_line(NULL, 41, &(struct err){"no \xff file", ERR_FAILED}, line, err);
}

static int read_all(struct buf *line, struct err *err)
{
    struct request r;
    char text[512];
    int rc =
        read_line(&r,
                  "{\"id\": {\"a\": [1, null]}, \"ids\": [404, 115, 468], \"stop\": [\"a\", \"b\"], "
                  "\"logit_bias\": {\"5\": 1, \"6\": 2}, \"temp\": 0.5, \"n\": 3}",
                  false, err);
    if (rc == 0) {
        json_set_alloc_funcs(malloc, free); /* the test itself does not fail */
        describe_request(&r, text, sizeof text);
        rc = buf_addf(line, err, "%s", text);
        use_failing_allocator();
    }
    request_close(&r);
    return rc;
}

/* Whichever allocation fails, the output is complete, or empty with an error. */
static void test_allocations(const char *what, int (*job)(struct buf *, struct err *))
{
    struct buf want = {0}, got = {0};
    struct err err = {.text = ""};
    size_t failed = 0, total;
    allocations = 0;
    allowed = SIZE_MAX;
    use_failing_allocator();
    check(job(&want, &err) == 0, "%s: %s", what, err.text);
    total = allocations;
    for (size_t k = 0; k < 2 * total; k++) {
        allocations = 0;
        allowed = k / 2;
        all_later = k % 2;
        buf_clear(&got);
        err.text[0] = 0;
        const int rc = job(&got, &err);
        failed += rc < 0 && all_later;
        check(rc < 0 ? got.len == 0 && err.text[0]
                     : got.len == want.len && memcmp(got.data, want.data, want.len) == 0,
              "%s, allocation %zu: %d %s %s", what, allowed, rc, err.text, got.len ? got.data : "");
    }
    json_set_alloc_funcs(malloc, free);
    check(failed == total && total > 5, "%s: %zu of %zu allocations that fail are an error", what,
          failed, total);
    printf("# %s: %.*s\n", what, (int)want.len - 1, want.data);
    buf_release(&want);
    buf_release(&got);
}

static int print_members(void)
{
    struct member_doc doc;
    for (size_t i = 0; request_member(i, &doc); i++) {
        printf("%s\t", doc.names[0]);
        for (size_t n = 1; doc.names[n]; n++)
            printf("%s%s", n > 1 ? ", " : "", doc.names[n]);
        printf("\t%s\n", doc.expected);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct buf blob = {0};
    struct err err;
    if (argc > 1 && strcmp(argv[1], "members") == 0)
        return print_members();
    test_names();
    test_values();
    test_errors();
    test_words();
    if (check(tokenizer_build_bytes(256, &blob, &err) == 0 &&
                  tokenizer_open(&tok, blob.data, blob.len, &err) == 0,
              "%s", err.text)) {
        test_allocations("result", write_result);
        test_allocations("failure", write_failure);
        test_allocations("request", read_all);
        tokenizer_free(tok);
    }
    buf_release(&blob);
    return check_result();
}
