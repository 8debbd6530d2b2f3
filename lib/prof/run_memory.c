/* Predicts KV cache memory, then grows a real cache to its full length and counts its bytes. */
#include "cpu/cpu_memory.h"
#include "kv/kv_footprint.h"
#include "prof/run.h"

static int open_cache(struct kv **kv, const struct run *run, const struct kv_spec *spec, size_t layers,
                      size_t n_seqs, struct err *err)
{
    struct kv_shape shape = config_kv_shape(&run->config, run->N, run->kv_type);
    struct kv_spec at_once = *spec;
    at_once.grow_now = true; /* as under bmc-gen --memory */
    at_once.state.shape = config_state_shape(&run->config);
    if (shape.layers) /* recurrent state in proportion */
        at_once.state.shape.layers = at_once.state.shape.layers * layers / shape.layers;
    at_once.memory = &cpu_memory;
    shape.layers = layers;
    return kv_open(kv, &at_once, &shape, n_seqs, err);
}

static size_t kv_layers(const struct run *run)
{
    return config_kv_layers(&run->config, 0, run->config.layers);
}

/* Chooses the part of the case that fits in `most` bytes: all layers of some prompts, or some
 * layers of one prompt. */
static void choose_part(struct memory_result *r, const struct run *run, const struct memory_case *what,
                        struct kv_footprint need, size_t most)
{
    /* need.total includes offloaded entries, since writing them takes time, too */
    const size_t layers = kv_layers(run),
                 all = size_plus(size_plus(need.total, need.ahead), need.state);
    const size_t fits = most < need.transient ? 0 : (most - need.transient) / size_max(1, all);
    const size_t of_layer = size_plus(all, need.transient) / layers;
    r->run_batch = size_max(1, size_min(what->batch, fits));
    r->run_layers = fits ? layers : size_min(layers, most / size_max(1, of_layer));
}

/* Maximum tokens to append at once: the policy's limit per forward pass; without one, all `rows`,
 * or a single tile with offloading. */
static size_t rows_at_once(const struct kv *kv, size_t rows)
{
    const size_t most = kv_setup(kv)->step_rows;
    if (most)
        return most;
    return kv_offload(kv).ram ? TILE_ROWS : rows;
}

static int grow(struct kv *kv, size_t seq, size_t rows, struct err *err)
{
    const size_t most = rows_at_once(kv, rows);
    for (size_t step; rows; rows -= step) {
        step = size_min(most, rows);
        if (kv_ensure(kv, seq, step, err) < 0)
            return -1;
        kv_commit(kv, seq, step);
    }
    return 0;
}

/* Grows each beam to its full answer. The last token of every answer is appended separately, so
 * that policies that reallocate also copy. */
static int grow_answers(struct kv *kv, size_t first, const struct memory_case *what, struct err *err)
{
    for (size_t i = 0; i < what->beams; i++)
        if (what->answer > 1 && grow(kv, first + i, what->answer - 1, err) < 0)
            return -1;
    for (size_t i = 0; i < what->beams; i++)
        if (what->answer && grow(kv, first + i, 1, err) < 0)
            return -1;
    return 0;
}

static int grow_prompt(struct kv *kv, size_t first, const struct memory_case *what, struct err *err)
{
    if (what->prompt && grow(kv, first, what->prompt, err) < 0)
        return -1;
    for (size_t i = 1; i < what->beams; i++)
        if (kv_fork(kv, first + i, first, what->prompt, err) < 0)
            return -1;
    return grow_answers(kv, first, what, err);
}

static int run_part(struct memory_result *r, const struct run *run, const struct kv_spec *spec,
                    const struct memory_case *what, struct err *err)
{
    struct kv *kv;
    struct kv_spec same = *spec; /* the policy with the growth step r of the full-length cache */
    same.T = 0;
    same.r = r->r;
    int rc = open_cache(&kv, run, &same, r->run_layers, r->run_batch * what->beams, err);
    for (size_t i = 0; i < r->run_batch && rc == 0 && !*run->interrupted; i++)
        rc = grow_prompt(kv, i * what->beams, what, err);
    if (rc == 0) {
        const size_t rows = what->prompt + what->answer;
        r->run_bytes = kv_stats(kv).resident_bytes;
        r->arithmetic_bytes = kv_footprint_resident(
            kv, kv_footprint_times(kv_footprint(kv, what->prompt, rows, what->beams), r->run_batch));
    }
    kv_close(kv);
    return rc == 0 && *run->interrupted ? err_code(err, ERR_INTERRUPTED, "interrupted") : rc;
}

int run_memory(const struct run *run, const struct kv_spec *spec, const struct memory_case *what,
               size_t budget, size_t most, struct memory_result *r, struct err *err)
{
    struct kv *kv;
    *r = (struct memory_result){0};
    if (open_cache(&kv, run, spec, kv_layers(run), what->beams, err) < 0)
        return -1;
    const size_t rows = what->prompt + what->answer, step = size_max(what->prompt, 1);
    struct kv_footprint need = kv_footprint(kv, what->prompt, rows, what->beams);
    need.floor = size_times(what->beams, offload_floor(kv, rows, size_min(step, DEFAULT_CHUNK)));
    r->impossible = !kv_footprint_possible(kv, need);
    r->T = kv_setup(kv)->T;
    r->r = kv_setup(kv)->r;
    r->bytes = kv_footprint_resident(kv, kv_footprint_times(need, what->batch));
    r->peak = kv_footprint_peak(kv, kv_footprint_times(need, what->batch));
    r->least = need.floor;
    r->fits = r->impossible ? 0 : kv_footprint_fits(kv, need, budget);
    if (!r->impossible)
        choose_part(r, run, what, need, most);
    kv_close(kv);
    const size_t seqs = size_times(what->batch, what->beams);
    if (!r->impossible &&
        run_activations(run, spec, seqs, size_max(seqs, size_times(what->batch, what->prompt)),
                        &r->activations, err) < 0)
        return -1;
    return r->run_layers ? run_part(r, run, spec, what, err) : 0;
}
