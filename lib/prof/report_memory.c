/* KV cache memory: by the papers' equations, by each policy's formula, and as counted by a real cache. */
#include <math.h>

#include "prof/report.h"

/* ---- equations: KV entries for one prompt and the tokens generated from it ---- */

/* One contiguous cache per beam (segment paper, eq. 2). */
static double standard_rows(const struct run *run, const struct test *test)
{
    (void)run;
    return (double)test->beams * (double)(test->n_prompt + test->n_gen);
}

/* Prompt shared by all beams, generated tokens in growth steps of 16 (segment paper, eq. 3). */
static double segment_rows(const struct run *run, const struct test *test)
{
    (void)run;
    return (double)test->n_prompt + (double)test->beams * (double)round_up(test->n_gen, 16);
}

/* A sliding window of N positions in 2 (N - 1) KV entries, so that it rarely copies (HTP note). */
static double window_rows(const struct run *run, const struct test *test)
{
    return 2.0 * (double)test->beams * (double)(run->N - 1);
}

/* A sliding window of N positions in 1.5 (N - 1) KV entries, which copies more often. */
static double short_window_rows(const struct run *run, const struct test *test)
{
    return 1.5 * (double)test->beams * (double)(run->N - 1);
}

void memory_equations(struct contender contender[MEMORY_EQUATIONS], const struct kv_spec *any)
{
    const struct contender equations[MEMORY_EQUATIONS] = {
        {"standard (eq. 2)", *any, 0, standard_rows},
        {"segment (eq. 3)", *any, 0, segment_rows},
        {"2(N-1) rows", *any, 0, window_rows},
        {"1.5(N-1) rows", *any, 0, short_window_rows},
    };
    memcpy(contender, equations, sizeof equations);
}

/* ---- policies ---- */

/* Bytes of an untied input embedding that are resident after random tokens were looked up: on a page
 * fault the kernel maps the 64 KiB around the page (fault_around_bytes). */
static double embedding_read(const struct memory_job *job, const struct test *test)
{
    const double windows = (double)job->embed_bytes / 65536;
    const double tokens = (double)test->batch * (double)(test->n_prompt + test->beams * test->n_gen);
    return (double)job->embed_bytes * (windows > 1 ? 1 - exp(-tokens / windows) : 1);
}

/* Predicted peak of resident memory: the program, weights, KV entries while they grow, activations. */
static size_t peak_bytes(const struct memory_job *job, const struct test *test,
                         const struct memory_result *r)
{
    const size_t weights = job->weights.all - job->embed_bytes + (size_t)embedding_read(job, test);
    return size_plus(size_plus(job->program_bytes, weights), size_plus(r->peak, r->activations));
}

/* What applies to an equation, or could not be run, is not stated. */
static void leave_out(struct figures *f, const struct contender *contender, size_t budget)
{
    struct memory_result *r = &f->memory;
    const size_t none = SIZE_MAX;
    f->run_over =
        r->run_layers && r->arithmetic_bytes ? (double)r->run_bytes / (double)r->arithmetic_bytes : NAN;
    if (contender->equation)
        f->T = f->r = f->peak_bytes = r->activations = none;
    if (!r->run_layers)
        r->run_layers = r->run_batch = r->run_bytes = none;
    if (!r->least)
        r->least = none;
    if (!budget && !r->impossible)
        r->fits = none;
}

int measure_memory(void *arg, const struct measurement *m, struct figures *f, struct err *err)
{
    const struct memory_job *job = arg;
    const struct run *run = &job->report->run;
    const struct test *test = &m->test;
    const struct memory_case what = {test->batch, test->beams, test->n_prompt, test->n_gen};
    struct memory_result *r = &f->memory;
    f->token_bytes = config_token_bytes(&run->config, run->kv_type);
    f->full_token_bytes = config_full_token_bytes(&run->config, run->kv_type);
    f->weights = job->weights;
    if (m->contender->equation) {
        const double one = m->contender->equation(run, test) * f->token_bytes;
        f->kv_bytes = (double)test->batch * one;
        r->fits = one > 0 ? (size_t)((double)job->budget / one) : 0;
    } else {
        if (run_memory(run, &m->contender->spec, &what, job->budget, job->run_bytes, r, err) < 0)
            return -1;
        f->kv_bytes = (double)r->bytes;
        f->T = r->T;
        f->r = r->r;
        f->peak_bytes = peak_bytes(job, test, r);
    }
    const double standard = (double)test->batch * standard_rows(run, test) * f->token_bytes;
    f->over_standard = standard > 0 ? f->kv_bytes / standard : NAN;
    leave_out(f, m->contender, job->budget);
    return 0;
}
