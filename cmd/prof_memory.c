/* bmc-prof memory: what caches take, by the papers' equations and by each policy's arithmetic, beside what one really holds. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "prof.h"

enum { MAX_CASES = PROF_MAX_LIST * PROF_MAX_LIST * PROF_MAX_LIST * PROF_MAX_LIST };

/* The lists of the options. */
struct lists {
    size_t batch[PROF_MAX_LIST], beams[PROF_MAX_LIST], prompt[PROF_MAX_LIST], gen[PROF_MAX_LIST];
    size_t n_batch, n_beams, n_prompt, n_gen;
};

static struct lists read_lists(const struct prof_options *o)
{
    static const struct opt_sizes beams = {"--beams", 1, 4096, PROF_MAX_LIST};
    struct lists l;
    prof_batches(o, l.batch, &l.n_batch);
    opt_sizes(&prof_program, &beams, o->beams, l.beams, &l.n_beams);
    prof_list(o->prompt, "--prompt", l.prompt, &l.n_prompt);
    prof_list(o->gen, "--gen", l.gen, &l.n_gen);
    return l;
}

/* Every combination but those of no rows, the batches of each together. */
static size_t combine(const struct lists *l, struct memory_case *what)
{
    size_t n = 0;
    for (size_t p = 0; p < l->n_prompt; p++)
        for (size_t g = 0; g < l->n_gen; g++)
            for (size_t w = 0; w < l->n_beams; w++)
                for (size_t b = 0; b < l->n_batch; b++)
                    if (l->prompt[p] + l->gen[g])
                        what[n++] = (struct memory_case){.batch = l->batch[b],
                                                         .beams = l->beams[w],
                                                         .prompt = l->prompt[p],
                                                         .answer = l->gen[g]};
    return n;
}

static size_t longest(const struct memory_case *what, size_t n)
{
    size_t rows = 0;
    for (size_t i = 0; i < n; i++)
        rows = size_max(rows, what[i].prompt + what[i].answer);
    return rows;
}

static int check_rows(const struct prof *prof, size_t rows, struct err *err)
{
    const size_t N = prof->report.run.N;
    return rows <= N
               ? 0
               : err_set(err, "prompt and answer together have %zu rows, the context %zu: raise -N",
                         rows, N);
}

static int print(const struct prof *prof, const json_t *rows, struct err *err)
{
    return prof_print(
        prof, rows,
        "policy r batch beams n_prompt n_gen kv_bytes over_standard least_bytes fits run_bytes", err);
}

int prof_memory(const struct prof_options *options, struct err *err)
{
    struct prof prof = {.options = options};
    struct prof_options o = *options;
    const struct lists lists = read_lists(&o);
    struct memory_case *what = mem_alloc(MAX_CASES, sizeof *what);
    json_t *rows = json_array();
    int rc = what ? 0 : err_set(err, "out of memory for %d cases", MAX_CASES);
    const size_t n = rc == 0 ? combine(&lists, what) : 0, most = longest(what, n);
    if (rc == 0 && !n)
        opt_usage_error(&prof_program, "nothing to count: -p and -n are all 0");
    o.context = o.context ? o.context : most;
    if (rc == 0)
        rc = prof_open(&prof, &o, false, err);
    if (rc == 0)
        rc = check_rows(&prof, most, err);
    if (rc == 0)
        rc = report_memory(&prof.report, prof.contender, prof.n_contenders, what, n, o.memory_bytes,
                           o.megabytes << 20, rows, err);
    if (rc == 0)
        rc = print(&prof, rows, err);
    prof_close(&prof);
    free(what);
    json_decref(rows);
    return rc;
}
