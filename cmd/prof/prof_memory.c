/* bmc-prof memory: cache memory by the papers' equations and by each policy's formula, and as
 * counted by a real cache. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/file_head.h"
#include "base/mem.h"
#include "prof/prof.h"
#include "quant/pack.h"

enum { MAX_CASES = PROF_MAX_LIST * PROF_MAX_LIST * PROF_MAX_LIST * PROF_MAX_LIST };

struct lists {
    size_t batch[PROF_MAX_LIST], beams[PROF_MAX_LIST], prompt[PROF_MAX_LIST], gen[PROF_MAX_LIST];
    size_t n_batch, n_beams, n_prompt, n_gen;
};

static struct lists read_lists(const struct prof_options *o)
{
    static const struct opt_sizes beams = {"--beams", 1, 4096, PROF_MAX_LIST};
    struct lists l;
    prof_list(o->batch, "--parallel", 1, l.batch, &l.n_batch);
    opt_sizes(&prof_program, &beams, o->beams, l.beams, &l.n_beams);
    prof_list(o->prompt, "--prompt", 0, l.prompt, &l.n_prompt);
    prof_list(o->gen, "--gen", 0, l.gen, &l.n_gen);
    return l;
}

/* Lists all combinations of prompt length, generated tokens, beams and batch size, except those of
 * no tokens; returns their number. */
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

static void count_weights(struct prof *prof)
{
    struct report *report = &prof->report;
    const struct weight_bytes bytes = config_weight_bytes(
        &report->run.config, prof->model ? &prof->model->weights : NULL, report->weight_type);
    report->weight_bytes = bytes.all;
    report->active_weight_bytes = bytes.active;
    report->expert_bytes = bytes.experts;
    const struct config *c = &report->run.config;
    if (!c->tied_head)
        report->embed_bytes = c->vocab * pack_row_bytes(prof->model ? prof->model->weights.embed.dtype
                                                                    : report->weight_type,
                                                        c->embed);
    /* without the model's header, which may be in a huge page of weights */
    if (prof->model)
        file_map_release_pages(&prof->model->file.map);
    report->program_bytes = file_proc_bytes("/proc/self/status", "VmRSS");
}

#define COLUMNS "policy r batch beams n_prompt n_gen kv_bytes over_standard least_bytes fits peak_bytes"

int prof_memory(const struct prof_options *options, struct err *err)
{
    struct prof prof = {.options = options};
    struct prof_options o = *options;
    const struct lists lists = read_lists(&o);
    struct memory_case *what = mem_alloc(MAX_CASES, sizeof *what);
    int rc = what ? 0 : err_no_memory(err, "%d cases", MAX_CASES);
    const size_t n = rc == 0 ? combine(&lists, what) : 0, most = longest(what, n);
    if (rc == 0 && !n)
        opt_usage_error(&prof_program, "nothing to count: -p and -n are all 0");
    o.context = o.context ? o.context : most;
    if (rc == 0)
        rc = prof_open(&prof, &o, false, err);
    if (rc == 0 && most > prof.report.run.N)
        rc = err_set(err, "prompt and answer have %zu tokens together, the context %zu: raise -N", most,
                     prof.report.run.N);
    if (rc == 0)
        count_weights(&prof);
    if (rc == 0)
        rc = report_memory(&prof.report, prof.contender, prof.n_contenders, what, n, o.memory_bytes,
                           o.megabytes << 20, prof.rows, err);
    if (rc == 0)
        rc = prof_print(&prof, COLUMNS, err);
    prof_close(&prof);
    free(what);
    return rc;
}
