/* The jobs of bmc-tune: calibration, configuration points, batch knee. */
#include "quant/cache_types.h"
#include "base/number.h"
#include "opt/opt.h"
#include "base/threads.h"
#include "cli.h"
#include "model/model_pages.h"
#include "tuned.h"
#include "model/convert/tensor_types.h"
#include "model/family/family.h"
#include "prof/roofline.h"
#include "tune/tune.h"
#include "open_model.h"

/* ---- opening ---- */

/* Parses "auto" or "auto,p=0.8"; false: it is neither. */
static bool read_auto(const char *text, struct tune *tune)
{
    if (strncmp(text, "auto", 4) != 0)
        return false;
    tune->plan_spec = true;
    if (text[4] && (strncmp(text + 4, ",p=", 3) != 0 || !parse_double(text + 7, &tune->rate) ||
                    !(tune->rate > 0 && tune->rate < 1)))
        opt_usage_error(&tune_program, "--spec: \"%s\" is not as auto or auto,p=0.8 with 0 < p < 1",
                        text);
    return true;
}

/* Parses "k=26,m=4". */
static void read_spec(const char *text, struct tune_run *run)
{
    char k[16], m[16];
    if (sscanf(text, "k=%15[0-9],m=%15[0-9]", k, m) != 2 || !parse_size(k, &run->k) ||
        !parse_size(m, &run->m) || strlen(text) != strlen(k) + strlen(m) + 5 || run->m < 1 ||
        run->m > run->k || run->k > 1024)
        opt_usage_error(&tune_program,
                        "--spec: \"%s\" is not as k=26,m=4 with 1 <= m <= k <= 1024, or auto", text);
}

static int open_shape(struct tune *tune, struct err *err)
{
    const struct tune_options *o = tune->options;
    char folder[8192];
    if (o->model) {
        if (cli_open_model(&tune_program, "-m", o->model, NULL, NULL, &tune->model, err) < 0 ||
            model_need_head(tune->model, err) < 0 ||
            cli_use_pages(tune_program.name, tune->model,
                          &(struct pages_options){o->hugepages, o->numa, tune->run.threads}, err) < 0)
            return -1;
        tune->config = tune->model->config;
        tune->shape = tune->model->name;
        hash_hex(&tune->model->file.model_id, HASH_BYTES, tune->key);
        return 0;
    }
    if (cli_models_dir(folder, sizeof folder, err) < 0)
        return -1;
    tune->machine = !o->shape;
    tune->shape = o->shape ? o->shape : "llama-2-7b";
    profile_shape_key(tune->key, sizeof tune->key, tune->shape);
    return shape_configure_model(folder, tune->shape, &tune->config, err);
}

static int open_lists(struct tune *tune, struct err *err)
{
    const struct tune_options *o = tune->options;
    char N[32];
    if (!tune->config.heads)
        return err_set(err, "%s has no attention, so there is no KV cache to tune", tune->shape);
    snprintf(N, sizeof N, "%zu", size_min(2048, tune->config.context));
    const char *all = tune->machine ? "128,256,512,1024,2048,4096,8192,16384" : N;
    const struct opt_sizes context = {"--ctx-size", 2, 1 << 20, TUNE_MAX_LIST};
    const struct opt_sizes batch = {"--parallel", 1, 1 << 16, TUNE_MAX_LIST};
    opt_sizes(&tune_program, &context, o->context ? o->context : all, tune->N, &tune->n_N);
    opt_sizes(&tune_program, &batch, o->batch, tune->batch, &tune->n_batch);
    for (size_t i = 0; o->model && i < tune->n_N; i++)
        if (tune->N[i] > tune->config.context)
            return err_set(err, "-N %zu is beyond the model's context of %zu", tune->N[i],
                           tune->config.context);
    tune->point = calloc(TUNE_MAX_POINTS, sizeof *tune->point);
    return tune->point ? 0 : err_no_memory(err, "the points to measure");
}

/* The default precision is that of timed steps. */
static int set_precision(struct tune *tune, struct err *err)
{
    const struct tune_options *o = tune->options;
    const struct cache_types caches = cache_types_alike(cache_types[o->kv_type].type);
    return precision_parse(&tune->precision, tune->run.backend->only_f32 ? "f32" : o->precision,
                           tune->run.kernels,
                           tune->model ? model_weights_class(tune->model)
                                       : weights_class_of(random_types((size_t)o->type).type),
                           &caches, err);
}

/* Measures the limits that runs are compared with, on the team's threads; of a device the rate at which it copies. */
static int measure_roof(const struct tune *tune, struct profile *profile, struct err *err)
{
    const size_t bytes = size_min((size_t)tune->options->megabytes << 20, ROOF_BYTES);
    struct roof roof = {0};
    if (tune_on_device(tune->run.backend))
        roof.read_gb_s = roof_device_gb_s(tune->run.backend->memory, bytes, 2);
    else if (roof_measure_limits(&roof, bytes, err) < 0)
        return -1;
    profile->read_gb_s = roof.read_gb_s;
    for (size_t kind = 0; kind < PEAK_KINDS; kind++)
        profile->peak_gop_s[kind] = roof.peak[kind].gop_s;
    return 0;
}

/* The kernel set named by options, else the fastest by peak rates, which are always measured since
 * the profile stores them. */
static const struct kernels *choose_kernels(struct tune *tune, struct err *err)
{
    if (tune_on_device(tune->run.backend))
        return isa_select(tune->options->isa, "none", NULL, err);
    struct kernel_rates rates[RATES_MOST];
    const size_t n = rates_measure(rates, kernel_sets, RATES_LONG);
    profile_put_rates(&tune->profile, rates, n);
    return isa_is_default(tune->options->isa) ? rates_fastest(rates, n)
                                              : isa_select(tune->options->isa, "none", NULL, err);
}

int tune_open(struct tune *tune, const struct tune_options *o, struct err *err)
{
    *tune = (struct tune){.options = o};
    struct tune_run *run = &tune->run;
    if (opt_cores_use(o->cpu_mask, o->cores, err) < 0)
        return -1;
    run->threads = o->threads ? (int)o->threads : threads_allowed();
    threads_set(run->threads); /* before OpenBLAS is loaded, which reads the count */
    if (!(run->backend = tuned_backend(o->backend, o->precision, o->attn, err)))
        return -1;
    run->attn = attn_find(o->attn, err);
    run->kernels = run->attn ? choose_kernels(tune, err) : NULL;
    if (!run->kernels || measure_roof(tune, &tune->profile, err) < 0 ||
        kernels_load(run->kernels, err) < 0 || open_shape(tune, err) < 0 ||
        set_precision(tune, err) < 0)
        return -1;
    run->layers = 1;
    run->heads = tune->config.heads;
    run->kv_heads = tune->config.kv_heads;
    run->head_dim = tune->config.head_dim;
    run->v_dim = tune->config.latent->kv_rank;
    run->batch = run->k = run->m = 1;
    run->type = cache_types[o->kv_type].type;
    run->alloc = (enum vm_alloc)o->alloc;
    run->seed = o->seed.value;
    run->interrupted = &cli_interrupted;
    if (o->spec && !read_auto(o->spec, tune))
        read_spec(o->spec, run);
    if (open_lists(tune, err) < 0 ||
        evictor_open(&tune->evictor, run->backend, o->evict << 20, err) < 0)
        return -1;
    machine_of(&tune->profile.machine, run->backend, run->kernels->isa, run->alloc, run->threads);
    return 0;
}

void tune_close(struct tune *tune)
{
    evictor_close(&tune->evictor);
    model_close(tune->draft);
    if (!tune->model)
        config_close(&tune->config);
    model_close(tune->model);
    profile_release(&tune->profile);
    free(tune->point);
    free(tune->speculation);
}

/* ---- calibration ---- */

/* All rate curves to be measured. They are listed first, so that each pass measures each once. */
struct jobs {
    struct calibration *job; /* [MAX_JOBS] */
    size_t n;
    struct calibrate_plan plan;
};

enum { MAX_JOBS = 256 };

static void add_job(struct jobs *jobs, const struct tune_run *run, enum curve_what what)
{
    if (jobs->n < MAX_JOBS)
        calibration_begin(&jobs->job[jobs->n++], run, what, &jobs->plan);
}

/* Adds the curves for copying and allocation at one data type, and for attention at each batch
 * size, with 1 and k query positions. */
static void add_shape(const struct tune *tune, struct jobs *jobs, struct tune_run run)
{
    add_job(jobs, &run, CURVE_COPY);
    add_job(jobs, &run, CURVE_ALLOC);
    for (size_t i = 0; i < tune->n_batch; i++) {
        run.batch = tune->batch[i];
        run.k = 1;
        add_job(jobs, &run, CURVE_SDPA);
        run.k = tune->run.k;
        if (run.k > 1)
            add_job(jobs, &run, CURVE_SDPA);
    }
}

/* Without a model: adds curves of every cache data type, GQA group sizes 1 and 4, and every
 * attention backend unless --attn names one; of a device, which may lack types, of --cache-type alone. */
static void add_machine(const struct tune *tune, struct jobs *jobs, struct tune_run run)
{
    const bool on_device = tune_on_device(run.backend), only = tune->options->attn || on_device;
    for (size_t b = 0; attn_backends[b]; b++)
        for (size_t t = 0; cache_types[t].name; t++)
            for (size_t group = 1; group <= 4; group *= 4) {
                run.attn = attn_backends[b];
                run.type = cache_types[t].type;
                run.kv_heads = run.heads / group;
                run.k = 1;
                if ((only && run.attn != tune->run.attn) || (on_device && run.type != tune->run.type))
                    continue;
                if (group == 1 && (b == 0 || only)) {
                    add_job(jobs, &run, CURVE_COPY);
                    add_job(jobs, &run, CURVE_ALLOC);
                }
                add_job(jobs, &run, CURVE_SDPA);
            }
}

static void list_jobs(struct tune *tune, struct jobs *jobs)
{
    struct tune_run run = tune->run;
    const int state = tune->options->state;
    for (int cold = 0; cold < 2; cold++) {
        if ((cold && state == TUNE_HOT) ||
            (!cold && (state == TUNE_COLD || (tune->machine && state != TUNE_HOT))))
            continue;
        run.evictor = cold ? &tune->evictor : NULL;
        if (tune->machine)
            add_machine(tune, jobs, run);
        if (!tune->machine || run.k > 1 || tune->n_batch > 1 || tune->batch[0] > 1)
            add_shape(tune, jobs, run);
        if (!tune->machine && (run.kv_heads != run.heads || run.type != DTYPE_F32)) {
            struct tune_run plain = run; /* eq. 8 of the BMC paper, unmodified: G = 1, f32 */
            plain.kv_heads = run.heads;
            plain.type = DTYPE_F32;
            add_shape(tune, jobs, plain);
        }
    }
}

/* Reuses the rates of an earlier profile of this machine and configuration. */
static int take_constants(struct tune *tune, const char *path, struct err *err)
{
    const struct machine *here = &tune->profile.machine;
    struct profile old;
    bool found = false;
    int rc = profile_open(&old, path, &found, err);
    if (rc == 0 && !found)
        rc = err_set(err, "%s does not exist", path);
    if (rc == 0 && profile_check_machine(&old, here, err) < 0)
        rc = err_prefix(err, "%s", path);
    for (size_t i = 0; rc == 0 && i < old.n_curves; i++)
        rc = profile_put_curve(&tune->profile, &old.curve[i], err);
    if (rc == 0 || found)
        profile_release(&old);
    return rc < 0 ? err_prefix(err, "--constants") : 0;
}

int tune_calibrate(struct tune *tune, struct err *err)
{
    if (tune->options->constants)
        return take_constants(tune, tune->options->constants, err);
    struct jobs jobs = {.plan = {.points = 7,
                                 .min_bytes = 256 << 10,
                                 .max_bytes = (double)tune->options->megabytes * 1048576,
                                 .seconds_per_point = fmin(tune->options->seconds, 10) / 250,
                                 .samples = 5}};
    struct cli_progress bar;
    struct rate_curve curve;
    jobs.job = calloc(MAX_JOBS, sizeof *jobs.job);
    if (!jobs.job)
        return err_no_memory(err, "the points to measure");
    list_jobs(tune, &jobs);
    int rc = 0;
    cli_progress_begin(&bar, "calibrating");
    for (size_t pass = 0; pass < CALIBRATE_MAX_PASSES; pass++)
        for (size_t i = 0; rc == 0 && i < jobs.n; i++) {
            rc = calibration_pass(&jobs.job[i], &jobs.plan, err);
            cli_progress(&bar, pass * jobs.n + i + 1, CALIBRATE_MAX_PASSES * jobs.n);
        }
    for (size_t i = 0; rc == 0 && i < jobs.n; i++)
        if ((rc = calibration_curve(&jobs.job[i], &curve, err)) == 0)
            rc = profile_put_curve(&tune->profile, &curve, err);
    cli_progress_end(&bar);
    free(jobs.job);
    return rc;
}

/* ---- configuration points ---- */

/* Predicts and measures a point, hot or cold, and puts its T into the profile. */
static int make_point(struct tune *tune, struct config_point_plan *plan, bool cold, struct err *err)
{
    struct tune_run run = tune->run;
    struct config_point *point = &tune->point[tune->n_points];
    run.evictor = cold ? &tune->evictor : NULL;
    if (config_point_make(&run, &tune->profile, plan, point, err) < 0)
        return -1;
    tune->n_points++;
    if (!cold || run.k > 1)
        return 0;
    struct tuned_T tuned = {.type = run.type,
                            .width = run.heads * run.head_dim,
                            .group = run.heads / run.kv_heads,
                            .layers = tune->config.layers,
                            .batch = plan->batch,
                            .N = plan->N,
                            .T = point->answer.pow2};
    snprintf(tuned.attn, sizeof tuned.attn, "%s", tune_attn_name(run.backend, run.attn));
    return profile_put_T(&tune->profile, &tuned, err);
}

/* Adds or finds a model's profile entry and sets its display name. */
static struct tuned_model *entry_of(struct tune *tune, const char *key, const char *name,
                                    struct err *err)
{
    const char *slash = strrchr(name, '/');
    struct tuned_model *model = profile_put_model(&tune->profile, key, err);
    if (model) {
        snprintf(model->name, sizeof model->name, "%.*s", (int)sizeof model->name - 1,
                 slash ? slash + 1 : name);
        text_make_printable(model->name, strlen(model->name), "");
    }
    return model;
}

static int set_policy(struct tune *tune, struct err *err)
{
    struct ratio ratio;
    const char *policy = config_points_policy(tune->point, tune->n_points, &ratio);
    struct tuned_model *model = policy ? entry_of(tune, tune->key, tune->shape, err) : NULL;
    if (!policy)
        return 0;
    if (!model)
        return -1;
    snprintf(model->policy, sizeof model->policy, "%s", policy);
    model->policy_ratio = ratio;
    return 0;
}

/* Without a model, points are predicted, except one that is measured to find the fastest policy. */
static bool is_measured(const struct tune *tune, size_t N, size_t batch)
{
    if (tune->options->no_sweep)
        return false;
    return !tune->machine || tune->options->context || (N == 1024 && batch == tune->batch[0]);
}

int tune_points(struct tune *tune, struct err *err)
{
    const struct tune_options *o = tune->options;
    const int states = o->state == TUNE_BOTH && !tune->machine ? 2 : 1;
    /* a point that was not requested gets at most 15 s */
    const double seconds = tune->machine && !o->context ? fmin(o->seconds, 15) : o->seconds;
    struct cli_progress bar;
    int rc = 0;
    cli_progress_begin(&bar, "measuring");
    for (size_t b = 0; b < tune->n_batch; b++)
        for (size_t i = 0; i < tune->n_N; i++) {
            struct config_point_plan plan = {
                .N = tune->N[i],
                .batch = tune->batch[b],
                .sweep = is_measured(tune, tune->N[i], tune->batch[b]),
                .others = true,
                .exact = o->exact,
                .rounds = o->rounds,
                .attempts = o->force ? 1 : TUNE_ATTEMPTS,
                .budget_s = seconds / states,
                .progress = cli_progress,
                .arg = &bar,
            };
            if (rc == 0 && o->state != TUNE_HOT)
                rc = make_point(tune, &plan, true, err);
            if (rc == 0 && (o->state == TUNE_HOT || states == 2))
                rc = make_point(tune, &plan, false, err);
        }
    cli_progress_end(&bar);
    return rc == 0 ? set_policy(tune, err) : -1;
}

/* ---- batch knee ---- */

/* Generates a model with random weights: of the shape given, or of one with a billion parameters.
 * Sets `name`, its display name. */
static int knee_model(struct tune *tune, struct model **model, char *name, size_t size, struct err *err)
{
    const struct tune_options *o = tune->options;
    struct config config = tune->config;
    char folder[8192];
    const char *shape = tune->machine ? TUNE_KNEE_SHAPE : tune->shape;
    if (tune->machine && (cli_models_dir(folder, sizeof folder, err) < 0 ||
                          shape_configure_model(folder, shape, &config, err) < 0))
        return -1;
    config.layers = size_min(o->layers ? o->layers : 4, config.layers);
    profile_shape_key(tune->knee_key, sizeof tune->knee_key, shape);
    snprintf(name, size, "%s, %zu layers", shape, config.layers);
    const struct tensor_types types = random_types((size_t)o->type);
    const int rc = model_synthesize_types(model, &config, shape, &types, false, o->seed.value, err);
    if (tune->machine)
        config_close(&config);
    return rc;
}

struct session_options tune_session_options(const struct tune *tune, size_t batch, size_t context)
{
    return (struct session_options){
        .backend = tune->run.backend,
        .kv_types = cache_types_alike(tune->run.type),
        .cpu = {tune->run.kernels, tune->precision, tune->run.attn},
        .batch = batch,
        .context = context,
        .chunk = context,
        .threads = tune->run.threads,
        .threads_prefill = tune->run.threads,
    };
}

static int time_knee(struct tune *tune, const struct model *model, struct batch_knee *knee,
                     struct err *err)
{
    struct session_options options =
        tune_session_options(tune, 1, size_min(512, model->config.context));
    options.chunk = size_min(64, options.context);
    if (kv_spec_parse(&options.kv, "upfront", err) < 0)
        return -1;
    return calibrate_batch_knee(model, &options, options.context / 2, 5, &cli_interrupted, knee, err);
}

int tune_knee(struct tune *tune, struct err *err)
{
    struct model *made = NULL;
    struct batch_knee knee = {0};
    char name[4096 + 32];
    snprintf(name, sizeof name, "%s", tune->shape);
    memcpy(tune->knee_key, tune->key, sizeof tune->knee_key);
    if (!tune->model && knee_model(tune, &made, name, sizeof name, err) < 0)
        return -1;
    const int rc = time_knee(tune, made ? made : tune->model, &knee, err);
    model_close(made);
    struct tuned_model *entry = rc == 0 ? entry_of(tune, tune->knee_key, name, err) : NULL;
    if (!entry)
        return -1;
    entry->knee = knee;
    return 0;
}
