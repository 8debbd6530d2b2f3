/* The options of a session, from those of the command line, the profile and the processor. */
#include "base/threads.h"
#include "decode/prefix_store.h"
#include "gen/gen.h"
#include "tuned.h"
#include "userdir.h"

/* Sets the cache policy from --kv, by default the tuned profile's, and its T (number of cache
 * allocations) from the profile. */
static int open_policy(struct gen *gen, struct session_options *s, struct err *err)
{
    const struct gen_options *o = gen->options;
    /* bmc-spec also needs the profile's batch knee */
    const bool needed = gen->hooks || !o->kv || o->profile ||
                        (kv_spec_parse(&s->kv, o->kv, err) == 0 && kv_spec_needs_T(&s->kv));
    struct machine here;
    machine_of(&here, s->backend, s->cpu.kernels->isa, (enum vm_alloc)o->alloc, s->threads);
    if (needed && tuned_open(&gen->tuned, gen->program->name, o->profile, s->backend, &here, err) < 0)
        return -1;
    tuned_select(&gen->tuned, &gen->model->file.model_id);
    const char *tuned = tuned_policy(&gen->tuned);
    gen->policy_from = o->kv ? "option" : tuned ? "profile" : "default";
    if (kv_spec_parse(&s->kv, o->kv ? o->kv : tuned ? tuned : DEFAULT_POLICY, err) < 0)
        return -1;
    s->kv.tuner =
        tuned_for(&gen->tuned, tune_attn_name(s->backend, s->cpu.attn), gen->model->config.heads);
    return 0;
}

static size_t default_chunk(const struct gen *gen)
{
    return gen->ranks && gen->parallelism == PIPELINE_PARALLEL ? PIPELINE_CHUNK : DEFAULT_CHUNK;
}

const struct backend *gen_backend(const struct gen *gen, struct err *err)
{
    const struct gen_options *o = gen->options;
    return tuned_backend(o->gpu_layers ? o->backend : 0, o->precision, o->attn, err);
}

const struct kernels *gen_kernels(struct gen *gen, struct err *err)
{
    if (!gen->kernels)
        gen->kernels = isa_select(gen->options->isa, gen->options->profile, &gen->isa_from, err);
    return gen->kernels;
}

int gen_precision(const struct gen *gen, const struct kernels *kernels, enum precision *precision,
                  struct err *err)
{
    if (precision_parse(precision, gen->options->precision, kernels, model_weights_class(gen->model),
                        &gen->kv_types, err) < 0)
        return -1;
    if (gen->options->receipt && !gen->options->precision && *precision == PRECISION_BF16)
        *precision = PRECISION_F32; /* the same logits on every machine */
    return 0;
}

static size_t prefix_cache_mb(const struct gen_options *o)
{
    return o->prefix_cache_mb != SIZE_MAX ? o->prefix_cache_mb
           : o->interactive               ? INTERACTIVE_MB
                                          : PREFIX_MB;
}

int gen_session_options(struct gen *gen, struct session_options *s, struct err *err)
{
    const struct gen_options *o = gen->options;
    *s = (struct session_options){
        .kv_types = gen->kv_types,
        .backend = gen_backend(gen, err),
        .gpu_layers = o->gpu_layers == SIZE_MAX ? 0 : o->gpu_layers,
        .fallback = o->fallback,
        .cpu.attn = attn_find(o->attn, err),
        .memory_bytes = o->memory_bytes,
        .chunk = o->chunk ? o->chunk : default_chunk(gen),
        .prefix_cache_bytes = prefix_cache_mb(o) << 20,
        .kept_states =
            o->jsonl || o->interactive || o->save_kv || o->prompt_cache ? DEFAULT_KEPT_STATES : 0,
        .threads = o->threads ? (int)o->threads : threads_allowed(),
        .prefix_store = gen->prefix_store,
        .pressure = gen->pressure,
        .stored_every = gen->prefix_store ? gen->stored_every : 0,
        .stored_bytes = prefix_store_size(gen->prefix_store),
        .leader = gen->leads ? &gen->leader : NULL,
    };
    if (!s->cpu.attn || !s->backend)
        return -1;
    if (!o->backend && (s->gpu_layers || s->fallback))
        return err_set(err, "--%s is for a device: add --backend %s, or leave it out",
                       s->gpu_layers ? "gpu-layers" : "fallback", backends[1]->name);
    if (s->backend->only_f32 && (o->pressure.steps || o->pressure.replay))
        return err_code(err, ERR_INVALID,
                        "--kv-pressure is for the CPU's cache: leave --backend %s out",
                        s->backend->name);
    s->cpu.kernels = gen_kernels(gen, err);
    if (!s->cpu.kernels || gen_precision(gen, s->cpu.kernels, &s->cpu.precision, err) < 0 ||
        open_policy(gen, s, err) < 0)
        return -1;
    s->kv.attend_valid = o->rows;
    s->kv.alloc = (enum vm_alloc)o->alloc;
    /* growth in advance would admit fewer requests */
    s->kv.grow_now |= o->memory_bytes > 0 || o->pressure.steps;
    s->kv.scales = gen->kv_scales.range ? &gen->kv_scales : NULL;
    s->kv.offload.streaming = gen->heads.is ? &gen->heads : NULL;
    s->threads_prefill = o->threads_batch ? (int)o->threads_batch : s->threads;
    return 0;
}
