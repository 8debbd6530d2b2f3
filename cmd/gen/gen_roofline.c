/* The roofline of a run: what prefill and decoding had to do, how near they came to the machine's limits, and where the
 * time went. */
#include "gen/gen.h"

int gen_roofline_find(struct gen *gen, struct err *err)
{
    const struct profile *profile = &gen->tuned.profile;
    if (gen->options->roofline) {
        gen->roof_from = "measured";
        return roof_measure_limits(&gen->roof, ROOF_BYTES, err);
    }
    if (!gen->tuned.found || !(profile->read_gb_s > 0))
        return 0;
    gen->roof_from = "profile";
    gen->roof.read_gb_s = profile->read_gb_s;
    for (size_t kind = 0; kind < PEAK_KINDS; kind++)
        gen->roof.peak[kind].gop_s = profile->peak_gop_s[kind];
    return 0;
}

/* The limit of a phase; unknown if ranks share the work, as they may be on several machines, or a device and the CPU. */
static struct roof_limit limit_of(const struct gen *gen, const struct pass_work *work)
{
    static const struct roof unknown;
    const bool shared = gen->counts || session_pass(gen->session)->boundary_bytes;
    return roof_limit(shared ? &unknown : &gen->roof, work,
                      session_device_layers(gen->session) ? NULL : &session_options(gen->session)->cpu,
                      gen->kv_types.all);
}

static double percent(double part, double all) { return all > 0 ? 100 * part / all : 0; }

static void print_phase(const struct gen *gen, const char *name, const struct pass_work *work,
                        double ms)
{
    const struct roof_limit limit = limit_of(gen, work);
    const struct pass_times *t = &work->times;
    const bool on_device = session_device_layers(gen->session) > 0;
    const double macs = (double)work->macs[WEIGHTS_QUANTISED] + (double)work->macs[WEIGHTS_BF16] +
                        (double)work->macs[WEIGHTS_F32];
    if (!work->passes)
        return;
    fprintf(stderr, "%-16s = ", name);
    if (isnan(limit.ms))
        fprintf(stderr, "not measured (%s)",
                on_device ? "bmc-tune saves it" : "--roofline does, bmc-tune saves it");
    else
        fprintf(stderr, "%.1f %% of the %s %s of %.4g %s/s", percent(limit.ms, ms), limit.kind,
                strcmp(limit.kind, "read") == 0 ? "rate" : "peak", limit.rate,
                strcmp(limit.kind, "read") == 0 ? "GB" : "GOP");
    fprintf(
        stderr,
        "; %.2f MiB of weights and %.2f MiB of KV entries read, %.4g billion multiply-adds, %.4g of "
        "them in attention\n",
        (double)work->weight_bytes / 1048576, (double)work->kv_read_bytes / 1048576,
        (macs + (double)work->attention_macs) / 1e9, (double)work->attention_macs / 1e9);
    if (on_device) /* operations are still in its queue when they have been timed */
        return;
    fprintf(
        stderr,
        "                   attention %.1f %%, projections %.1f %%, MLP %.1f %%, head %.1f %%, other "
        "%.1f %%; conversion of activations %.1f %%, waiting for threads %.1f %%\n",
        percent(t->ms[PHASE_ATTENTION], ms), percent(t->ms[PHASE_PROJECTION], ms),
        percent(t->ms[PHASE_MLP], ms), percent(t->ms[PHASE_HEAD], ms), percent(t->ms[PHASE_OTHER], ms),
        percent(t->convert_ms, ms), percent(t->wait_ms, ms));
}

void gen_roofline_print(const struct gen *gen, const struct gen_stats *s)
{
    print_phase(gen, "prefill roofline", &s->prefill, s->prefill_ms);
    print_phase(gen, "decode roofline", &s->decode, s->decode_ms);
}

/* A number that is null if it is unknown. */
static json_t *number(double x) { return isfinite(x) && x > 0 ? json_real(x) : json_null(); }

static int put_phase(json_t *object, const struct gen *gen, const char *phase,
                     const struct pass_work *work, double ms, struct err *err)
{
    const struct roof_limit limit = limit_of(gen, work);
    char share[32], kind[32];
    snprintf(share, sizeof share, "%s_roof_share", phase);
    snprintf(kind, sizeof kind, "%s_roof_kind", phase);
    return json_put(object, share, number(limit.ms / ms), err) < 0 ||
                   json_put(object, kind,
                            limit.kind && work->passes ? json_string(limit.kind) : json_null(), err) < 0
               ? -1
               : 0;
}

int gen_roofline_fields(json_t *object, const struct gen *gen, const struct gen_stats *s,
                        struct err *err)
{
    static const char *const peaks[PEAK_KINDS] = {"roof_f32_gop_s", "roof_bf16_gop_s",
                                                  "roof_int8_gop_s"};
    int rc =
        json_put(object, "roof_from", gen->roof_from ? json_string(gen->roof_from) : json_null(), err);
    if (rc == 0)
        rc = json_put(object, "roof_read_gb_s", number(gen->roof.read_gb_s), err);
    for (size_t kind = 0; rc == 0 && kind < PEAK_KINDS; kind++)
        rc = json_put(object, peaks[kind], number(gen->roof.peak[kind].gop_s), err);
    return rc < 0 || put_phase(object, gen, "prefill", &s->prefill, s->prefill_ms, err) < 0 ||
                   put_phase(object, gen, "decode", &s->decode, s->decode_ms, err) < 0
               ? -1
               : 0;
}
