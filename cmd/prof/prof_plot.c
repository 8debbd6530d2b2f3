/* Charts of measurements. */
#include "plot.h"
#include "prof/prof.h"

static const char *row_text(const json_t *rows, size_t i, const char *key)
{
    const char *text = json_string_value(json_object_get(json_array_get(rows, i), key));
    return text ? text : "?";
}

static void set_title(struct chart *chart, const struct prof *prof, const char *what, const char *note)
{
    const struct run *run = &prof->report.run;
    chart_title(chart, what, prof->report.shape);
    chart_note(chart, "%zu layer%s, N = %zu, batch %zu, KV cache %s, attention %s, rounds: %d",
               run->config.layers, run->config.layers == 1 ? "" : "s", run->N, run->batch,
               row_text(prof->rows, 0, "kv_type"), tune_attn_name(run->backend, run->attn),
               prof->report.repeat);
    chart_note(chart, "%.200s, %d thread%s, isa %s", row_text(prof->rows, 0, "cpu"), run->threads,
               run->threads == 1 ? "" : "s", run->kernels->isa);
    chart_note(chart, "%s", note);
}

int prof_plot_policies(const struct prof *prof, struct err *err)
{
    static const struct drawn drawn[] = {
        {"allocation", "alloc_ms", NULL, NULL, SVG_BAR},
        {"copying", "copy_ms", NULL, NULL, SVG_BAR},
        {"new rows", "append_ms", NULL, NULL, SVG_BAR},
        {"attention", "sdpa_ms", NULL, NULL, SVG_BAR},
        {"total, fastest to slowest round", "total_ms", "total_ms_min", "total_ms_max",
         SVG_POINTS | SVG_WHISKERS | SVG_VALUES},
    };
    const char *name[PROF_MAX_LIST];
    struct chart chart = {.plot = {.x_name = "cache policy",
                                   .y_name = "time of all steps (ms)",
                                   .bar = name,
                                   .n_bars = prof->all.n}};
    for (size_t i = 0; i < prof->all.n; i++)
        name[i] = chart_text(&chart, "%s%s", prof->contender[i].text,
                             *prof->all.list[i].why.text ? " (not measured)" : "");
    set_title(&chart, prof, "Attention block under cache policies",
              "Parts and total are separate medians, and the total includes the time of "
              "measuring: bars need not reach it.");
    const int rc = chart_series(&chart, prof->rows, NULL, drawn, ARRAY_LEN(drawn), err);
    return chart_save(&chart, rc, prof->options.plot, err);
}

/* Marks the fastest T and the T that bmc uses by default. */
static void mark_T(struct chart *chart, const struct prof *prof)
{
    const struct svg_series *total = &chart->series[0];
    size_t best = 0, own = total->n;
    const char *from;
    const size_t own_T = prof_own_T(prof, &from);
    for (size_t i = 0; i < total->n; i++) {
        best = total->y[i] < total->y[best] || isnan(total->y[best]) ? i : best;
        own = total->x[i] == (double)own_T ? i : own;
    }
    chart_mark(
        chart, total->x[best], total->y[best],
        chart_text(chart, "%s T = %.0f", own == best ? "best and bmc's own" : "best", total->x[best]));
    if (own != best && own != total->n)
        chart_mark(chart, total->x[own], total->y[own],
                   chart_text(chart, "bmc's own T = %.0f (%s)", total->x[own], from));
}

int prof_plot_sweep(const struct prof *prof, struct err *err)
{
    static const struct drawn drawn[] = {
        {"total, fastest to slowest round", "total_ms", "total_ms_min", "total_ms_max",
         SVG_LINE | SVG_POINTS | SVG_BAND},
        {"copying", "copy_ms", NULL, NULL, SVG_LINE | SVG_POINTS},
        {"allocation", "alloc_ms", NULL, NULL, SVG_LINE | SVG_POINTS},
        {"attention", "sdpa_ms", NULL, NULL, SVG_LINE | SVG_POINTS},
    };
    struct chart chart = {.plot = {.x_name = "T, allocations per context",
                                   .y_name = "time of all steps (ms)",
                                   .log2_x = true}};
    set_title(&chart, prof, "Attention block under bmc by T",
              "Every point is a median of its own: parts need not add up to the total.");
    const int rc = chart_series(&chart, prof->rows, "T", drawn, ARRAY_LEN(drawn), err);
    if (rc == 0)
        mark_T(&chart, prof);
    return chart_save(&chart, rc, prof->options.plot, err);
}

/* A panel, whose title is as "bmc: p50 1.2 ms, p95 1.5 ms, slowest 4 ms". */
static struct svg_panel panel_of(struct chart *chart, const char *policy, const double *latency_ms,
                                 const struct svg_series *slowest)
{
    double most = 0;
    for (size_t i = 0; i < slowest->n; i++)
        most = fmax(most, isnan(slowest->y[i]) ? 0 : slowest->y[i]);
    return (struct svg_panel){isnan(latency_ms[0])
                                  ? chart_text(chart, "%s: not measured", policy)
                                  : chart_text(chart, "%s: p50 %.3g ms, p95 %.3g ms, slowest %.3g ms",
                                               policy, latency_ms[0], latency_ms[1], most),
                              latency_ms[0], latency_ms[1]};
}

int prof_plot_latency(const struct prof *prof, struct err *err)
{
    struct svg_panel panel[PROF_MAX_LIST];
    struct chart chart = {.plot = {.x_name = "n, KV entries in the cache",
                                   .y_name = "time of a token (ms)",
                                   .panel = panel,
                                   .n_panels = prof->n_contenders}};
    int rc = 0;
    set_title(
        &chart, prof, "Time of the n-th token",
        "A point stands for the tokens since the point before. Dashed: p50 and p95 of all tokens.");
    for (size_t i = 0; rc == 0 && i < prof->n_contenders; i++) {
        const char *policy = prof->contender[i].text, *median = chart_text(&chart, "%s_ms", policy);
        const struct drawn drawn[] = {
            {"median, area up to their p95", median, median, chart_text(&chart, "%s_p95_ms", policy),
             SVG_LINE | SVG_POINTS | SVG_BAND},
            {"slowest of them", chart_text(&chart, "%s_max_ms", policy), NULL, NULL, SVG_MAXIMA},
        };
        rc = chart_series(&chart, prof->rows, "n", drawn, ARRAY_LEN(drawn), err);
        if (rc == 0)
            panel[i] =
                panel_of(&chart, policy, prof->all.list[i].round[prof->report.repeat - 1].latency_ms,
                         &chart.series[2 * i + 1]);
    }
    return chart_save(&chart, rc, prof->options.plot, err);
}

int prof_plot_quality(const struct prof *prof, struct err *err)
{
    static const struct drawn drawn[] = {
        {"mean", "kld_mean", NULL, NULL, SVG_BAR},
        {"median, line up to the 99th percentile", "kld_median", "kld_median", "kld_p99",
         SVG_POINTS | SVG_WHISKERS},
    };
    const char *name[PROF_MAX_LIST];
    struct chart chart = {.plot = {.x_name = "positions",
                                   .y_name = "KL divergence (nats)",
                                   .bar = name,
                                   .n_bars = json_array_size(prof->rows)}};
    for (size_t i = 0; i < chart.plot.n_bars; i++)
        name[i] = row_text(prof->rows, i, "positions");
    chart_title(&chart, "Divergence of next-token distributions", prof->report.shape);
    chart_note(&chart, "precision %s, KV cache %s; reference: precision %s, KV cache %s",
               row_text(prof->rows, 0, "precision"), row_text(prof->rows, 0, "kv_type"),
               row_text(prof->rows, 0, "reference_precision"),
               row_text(prof->rows, 0, "reference_kv_type"));
    const int rc = chart_series(&chart, prof->rows, NULL, drawn, ARRAY_LEN(drawn), err);
    return chart_save(&chart, rc, prof->options.plot, err);
}
