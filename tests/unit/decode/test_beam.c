/* Beam search against transformers' generate(num_beams=W): ids and scores of all beams, in batches,
 * under a cache policy.
 *
 *   test_beam MODEL.bmc beams.json ENTRY POLICY [WIDTH]    the cases of an entry, or those with that many beams
 *   test_beam                                              the search itself: ties and stopping rules */
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/threads.h"
#include "tests/unit/check.h"
#include "decode/generate.h"
#include "decode/step_beam.h"

enum { PLACES = 2, MOST_CASES = 200 };

__attribute__((noreturn)) static void die(const char *why)
{
    printf("not ok - %s\n", why);
    exit(1);
}

/* ---- cases of a file ---- */

struct test_run {
    const json_t *of[MOST_CASES]; /* cases with the same options */
    struct gen_request request[MOST_CASES];
    struct ids ids[MOST_CASES];
    size_t n, next;
    double worst; /* largest difference of scores */
};

static size_t number(const json_t *c, const char *name)
{
    return (size_t)json_integer_value(json_object_get(c, name));
}

static const char *word(const json_t *c, const char *name)
{
    return json_string_value(json_object_get(c, name));
}

static bool same_options(const json_t *a, const json_t *b)
{
    return number(a, "beams") == number(b, "beams") && number(a, "n") == number(b, "n") &&
           strcmp(word(a, "early_stopping"), word(b, "early_stopping")) == 0 &&
           json_equal(json_object_get(a, "length_penalty"), json_object_get(b, "length_penalty"));
}

static int next_case(void *arg, bool wait, const struct gen_request **request, struct err *err)
{
    struct test_run *run = arg;
    (void)wait;
    if (run->next == run->n)
        return GEN_END;
    const size_t i = run->next++;
    const json_t *prompt = json_object_get(run->of[i], "prompt");
    for (size_t j = 0; j < json_array_size(prompt); j++)
        if (ids_add(&run->ids[i], (uint32_t)json_integer_value(json_array_get(prompt, j)), err) < 0)
            return -1;
    run->request[i] =
        (struct gen_request){.line = i, .ids = &run->ids[i], .n = number(run->of[i], "n")};
    *request = &run->request[i];
    return GEN_REQUEST;
}

static bool same_ids(const uint32_t *id, size_t n, const json_t *want)
{
    bool same = n == json_array_size(want);
    for (size_t i = 0; i < n && same; i++)
        same = id[i] == (uint32_t)json_integer_value(json_array_get(want, i));
    return same;
}

static int check_case(void *arg, const struct gen_result *result, struct err *err)
{
    struct test_run *run = arg;
    const json_t *c = run->of[result->request->line], *want = json_object_get(c, "results");
    (void)err;
    check(result->n_beams == json_array_size(want) && !result->error, "%zu beams, %s", result->n_beams,
          result->error ? result->error->text : "");
    for (size_t i = 0; i < result->n_beams; i++) {
        const struct beam *beam = &result->beams[i];
        const json_t *w = json_array_get(want, i);
        const double score = json_number_value(json_object_get(w, "score"));
        check(same_ids(beam->ids.id, beam->ids.len, json_object_get(w, "ids")),
              "W %zu, %s, penalty %g: ids of beam %zu differ", number(c, "beams"),
              word(c, "early_stopping"), json_number_value(json_object_get(c, "length_penalty")), i);
        check(near(beam->score, score, 1e-4) &&
                  beam->by_eos == json_is_true(json_object_get(w, "ended")),
              "beam %zu has %.7g, %.7g expected", i, beam->score, score);
        run->worst = fmax(run->worst, fabs(beam->score - score));
    }
    check(same_ids(result->ids, result->n_ids, json_object_get(json_array_get(want, 0), "ids")) &&
              (result->finish == FINISHED_EOS) == result->beams[0].by_eos,
          "the result is not the best beam");
    return 0;
}

static struct beam_options options_of(const json_t *c)
{
    static const char *const stoppings[] = {"yes", "no", "never"};
    struct beam_options options = {
        number(c, "beams"), json_number_value(json_object_get(c, "length_penalty")), BEAM_STOP_YES};
    while (strcmp(stoppings[options.stopping], word(c, "early_stopping")) != 0)
        options.stopping++;
    return options;
}

static void run_cases(struct test_run *run, const struct model *model, const char *policy)
{
    static const volatile sig_atomic_t never;
    const struct beam_options options = options_of(run->of[0]);
    const struct gen_callbacks callbacks = {.next = next_case, .done = check_case, .arg = run};
    const struct sampler_options sampling = {.repeat_penalty = 1};
    struct session_options s = {.context = 128,
                                .batch = PLACES * options.width,
                                .chunk = 512,
                                .threads = 2,
                                .threads_prefill = 2};
    struct session *session;
    struct step_beam *beam = NULL;
    struct gen_stats stats;
    struct err err;
    s.cpu.attn = attn_find(NULL, &err);
    s.cpu.kernels = kernels_select(NULL, &err);
    if (!s.cpu.kernels || kv_spec_parse(&s.kv, policy, &err) < 0 ||
        session_open(&session, model, &s, &err) < 0 ||
        step_beam_open(&beam, session, &options, options.width, &err) < 0 ||
        generate(session, &sampling, step_beam_strategy(beam), &callbacks, &never, &stats, &err) < 0)
        die(err.text);
    check(stats.sequences == run->n && stats.finished[FINISHED_ERROR] == 0, "%zu of %zu results",
          stats.sequences, run->n);
    step_beam_close(beam);
    session_close(session);
}

static void test_file(const char *path, const char *file, size_t entry, const char *policy,
                      size_t width)
{
    json_t *entries = json_load_file(file, 0, NULL);
    const json_t *of = json_array_get(entries, entry), *cases = json_object_get(of, "cases");
    const json_t *ends = json_object_get(of, "ends");
    const size_t n = json_array_size(cases);
    bool done[MOST_CASES] = {0};
    struct model *model = NULL;
    struct err err;
    double worst = 0;
    if (!n || n > MOST_CASES || model_open(&model, path, &err) < 0)
        die("no such entry or model");
    model->config.n_eos = json_array_size(ends);
    for (size_t i = 0; i < json_array_size(ends); i++)
        model->config.eos[i] = (uint32_t)json_integer_value(json_array_get(ends, i));
    for (size_t i = 0; i < n; i++) {
        struct test_run run = {0};
        if (width && number(json_array_get(cases, i), "beams") != width)
            continue;
        for (size_t j = i; j < n; j++)
            if (!done[j] && same_options(json_array_get(cases, i), json_array_get(cases, j))) {
                run.of[run.n++] = json_array_get(cases, j);
                done[j] = true;
            }
        if (run.n)
            run_cases(&run, model, policy);
        worst = fmax(worst, run.worst);
        for (size_t j = 0; j < run.n; j++)
            ids_release(&run.ids[j]);
    }
    printf("# scores differ by %.1e at most\n", worst);
    model_close(model);
    json_decref(entries);
}

/* ---- the search itself ---- */

static bool ends_at_7(const void *arg, uint32_t id)
{
    (void)arg;
    return id == 7;
}

/* With equal logits the lower path, then the lower id, comes first; end tokens count in the best W only. */
static void test_ties(void)
{
    enum { W = 3, VOCAB = 12 };
    static const float equal[W * VOCAB];
    const struct beam_options options = {W, 0, BEAM_STOP_NEVER};
    struct beam_search search;
    struct err err;
    if (beam_open(&search, &options, &err) < 0)
        die(err.text);
    beam_begin(&search, 3);
    for (int round = 0; round < 2; round++) {
        check(beam_step(&search, equal, VOCAB, NULL, ends_at_7, NULL, 1, &err) == 0 &&
                  search.n_paths == W,
              "round %d: %zu paths", round, search.n_paths);
        for (size_t i = 0; i < W; i++)
            check(search.parent[i] == 0 && search.id[i] == i, "round %d: path %zu is %u of %zu", round,
                  i, search.id[i], search.parent[i]);
    }
    check(beam_step(&search, equal, VOCAB, NULL, ends_at_7, NULL, 1, &err) == 0 &&
              search.n_paths == 0 && search.n_finished == W,
          "%zu of three finished", search.n_finished);
    for (size_t i = 0; i < W; i++)
        check(search.finished[i].ids.len == 3 && search.finished[i].ids.id[2] == i &&
                  !search.finished[i].by_eos && near(search.finished[i].score, -3 * log(VOCAB), 1e-6),
              "beam %zu: %g", i, search.finished[i].score);
    beam_close(&search);
}

/* An end token that ranks second of two beams finishes a path; ranking third, it is skipped. */
static void test_ends(void)
{
    enum { VOCAB = 12 };
    const struct beam_options options = {2, 1, BEAM_STOP_YES};
    for (size_t rank = 0; rank < 4; rank++) {
        struct beam_search search;
        struct err err;
        float logits[VOCAB];
        for (size_t i = 0; i < VOCAB; i++)
            logits[i] = -(float)i;
        logits[7] = 0.5F - (float)rank;
        if (beam_open(&search, &options, &err) < 0)
            die(err.text);
        beam_begin(&search, 9);
        check(beam_step(&search, logits, VOCAB, NULL, ends_at_7, NULL, 1, &err) == 0 &&
                  search.n_finished == (rank < 2) && search.n_paths == 2 && search.id[0] == 0 &&
                  search.id[1] == 1,
              "an end token of rank %zu: %zu beams are finished", rank, search.n_finished);
        check(rank >= 2 || (search.finished[0].by_eos && search.finished[0].ids.len == 0),
              "the finished beam");
        check(beam_finalize(&search, &err) == 0 && search.n_finished == 2,
              "%zu beams of a search that was "
              "ended early",
              search.n_finished);
        beam_close(&search);
    }
}

int main(int argc, char **argv)
{
    kernels_setup();
    threads_set(2);
    if (argc >= 5)
        test_file(argv[1], argv[2], strtoul(argv[3], NULL, 10), argv[4],
                  argc > 5 ? strtoul(argv[5], NULL, 10) : 0);
    else
        test_ties(), test_ends();
    return check_result();
}
