/* The tuned profile: the machine, entries, reading and writing them, and what programs ask. */
#include "tune/profile.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cores.h"
#include "base/file.h"
#include "base/number.h"
#include "base/threads.h"
#include "quant/cache_types.h"

/* ---- the machine ---- */

void machine_of(struct machine *m, const struct backend *backend, const char *isa, enum vm_alloc alloc,
                int threads)
{
    *m = (struct machine){
        .cores = (size_t)threads_allowed(),
        .threads = (size_t)threads,
        .page_size = (size_t)sysconf(_SC_PAGESIZE),
    };
    if (tune_on_device(backend)) {
        backend->describe(m->cpu, sizeof m->cpu);
        isa = backend->name;
        m->threads = 1;
    } else {
        cpu_model_name(m->cpu, sizeof m->cpu);
    }
    snprintf(m->isa, sizeof m->isa, "%s", isa);
    snprintf(m->alloc, sizeof m->alloc, "%s", vm_alloc_name(alloc));
}

bool machine_same_settings(const struct machine *a, const struct machine *b)
{
    return a->threads == b->threads && strcmp(a->isa, b->isa) == 0 && strcmp(a->alloc, b->alloc) == 0;
}

int profile_check_machine(const struct profile *p, const struct machine *here, struct err *err)
{
    if (strcmp(p->machine.cpu, here->cpu) != 0)
        return err_set(err, "made on \"%s\", this is \"%s\"; run bmc-tune here", p->machine.cpu,
                       here->cpu);
    if (p->machine.cores != here->cores)
        return err_set(err, "made with %zu cores, here are %zu; run bmc-tune here", p->machine.cores,
                       here->cores);
    if (p->machine.page_size != here->page_size)
        return err_set(err, "made with pages of %zu bytes, here they have %zu; run bmc-tune here",
                       p->machine.page_size, here->page_size);
    return 0;
}

/* ---- entries ---- */

void profile_release(struct profile *p)
{
    free(p->curve);
    free(p->tuned);
    free(p->model);
    free(p->spec);
    *p = (struct profile){0};
}

int profile_put_curve(struct profile *p, const struct rate_curve *curve, struct err *err)
{
    size_t i = 0;
    while (i < p->n_curves && !rate_curve_same(&p->curve[i], curve))
        i++;
    if (i == p->n_curves && mem_grow(&p->curve, &p->curves_cap, i, sizeof *curve, err) < 0)
        return -1;
    p->curve[i] = *curve;
    p->n_curves += i == p->n_curves;
    return 0;
}

static bool same_config(const struct tuned_T *a, const struct tuned_T *b)
{
    return strcmp(a->attn, b->attn) == 0 && a->type == b->type && a->width == b->width &&
           a->group == b->group && a->layers == b->layers && a->batch == b->batch && a->N == b->N;
}

int profile_put_T(struct profile *p, const struct tuned_T *tuned, struct err *err)
{
    size_t i = 0;
    while (i < p->n_tuned && !same_config(&p->tuned[i], tuned))
        i++;
    if (i == p->n_tuned && mem_grow(&p->tuned, &p->tuned_cap, i, sizeof *tuned, err) < 0)
        return -1;
    p->tuned[i] = *tuned;
    p->n_tuned += i == p->n_tuned;
    return 0;
}

static bool same_pair(const struct tuned_spec *a, const struct tuned_spec *b)
{
    return strcmp(a->target, b->target) == 0 && strcmp(a->draft, b->draft) == 0 &&
           strcmp(a->attn, b->attn) == 0 && a->type == b->type && a->batch == b->batch;
}

int profile_put_spec(struct profile *p, const struct tuned_spec *spec, struct err *err)
{
    size_t i = 0;
    while (i < p->n_specs && !(same_pair(&p->spec[i], spec) && p->spec[i].N == spec->N))
        i++;
    if (i == p->n_specs && mem_grow(&p->spec, &p->specs_cap, i, sizeof *spec, err) < 0)
        return -1;
    p->spec[i] = *spec;
    p->n_specs += i == p->n_specs;
    return 0;
}

static size_t distance_of_N(size_t a, size_t b) { return a > b ? a - b : b - a; }

const struct tuned_spec *profile_spec(const struct profile *p, const struct tuned_spec *like)
{
    const struct tuned_spec *best = NULL;
    for (size_t i = 0; i < p->n_specs; i++)
        if (same_pair(&p->spec[i], like) &&
            (!best || distance_of_N(p->spec[i].N, like->N) < distance_of_N(best->N, like->N)))
            best = &p->spec[i];
    return best;
}

void profile_put_rates(struct profile *p, const struct kernel_rates *rates, size_t n)
{
    p->n_rates = 0;
    for (size_t i = 0; i < n && i < RATES_MOST; i++) {
        struct tuned_rate *rate = &p->rate[p->n_rates++];
        snprintf(rate->isa, sizeof rate->isa, "%s", rates[i].kernels->isa);
        memcpy(rate->gop_s, rates[i].gop_s, sizeof rate->gop_s);
    }
}

/* Collects a kernel set's peak rates; false if the profile lacks one. */
static bool rates_of(const struct profile *p, const struct kernels *kernels, struct kernel_rates *rates)
{
    bool all = true;
    size_t i = 0;
    while (i < p->n_rates && strcmp(p->rate[i].isa, kernels->isa) != 0)
        i++;
    *rates = (struct kernel_rates){.kernels = kernels};
    if (i < p->n_rates)
        memcpy(rates->gop_s, p->rate[i].gop_s, sizeof rates->gop_s);
    for (int kind = 0; kind < PEAK_KINDS; kind++)
        all &= !kernels->peak[kind] || rates->gop_s[kind] > 0;
    return all;
}

const struct kernels *profile_kernels(const struct profile *p)
{
    struct kernel_rates rates[RATES_MOST];
    size_t n = 0;
    for (size_t i = 0; p->n_rates && kernel_sets[i] && n < RATES_MOST; i++)
        if (kernel_sets[i]->usable() && !rates_of(p, kernel_sets[i], &rates[n++]))
            return NULL;
    return n ? rates_fastest(rates, n) : NULL;
}

const struct tuned_model *profile_model(const struct profile *p, const char *key)
{
    for (size_t i = 0; i < p->n_models; i++)
        if (strcmp(p->model[i].key, key) == 0)
            return &p->model[i];
    return NULL;
}

struct tuned_model *profile_put_model(struct profile *p, const char *key, struct err *err)
{
    const struct tuned_model *there = profile_model(p, key);
    if (there)
        return &p->model[there - p->model];
    if (p->n_models == PROFILE_MODELS)
        err_set(err, "a profile has no more than %d models", PROFILE_MODELS);
    if (p->n_models == PROFILE_MODELS ||
        mem_grow(&p->model, &p->models_cap, p->n_models, sizeof *p->model, err) < 0)
        return NULL;
    struct tuned_model *model = &p->model[p->n_models++];
    *model = (struct tuned_model){.policy_ratio = {1, 1, 1}};
    snprintf(model->key, sizeof model->key, "%s", key);
    return model;
}

void profile_shape_key(char *key, size_t size, const char *shape)
{
    const char *slash = strrchr(shape, '/'), *name = slash ? slash + 1 : shape,
               *end = strstr(name, ".shape");
    const bool ends = end && end > name && !end[strlen(".shape")];
    snprintf(key, size, "%.*s", (int)size_min(ends ? (size_t)(end - name) : strlen(name), size - 1),
             name);
    for (char *at = key; *at; at++)
        if (*at > 0 && (*at <= ' ' || *at == 127))
            *at = '_';
}

/* Adds or updates a model: copies the results that `newer` has measured; others stay. */
static int merge_model(struct profile *p, const struct tuned_model *newer, struct err *err)
{
    struct tuned_model *model = profile_put_model(p, newer->key, err);
    if (!model)
        return -1;
    if (newer->knee.n || !model->knee.n) /* named by the run that measured the knee */
        memcpy(model->name, newer->name, sizeof model->name);
    if (newer->policy[0]) {
        memcpy(model->policy, newer->policy, sizeof model->policy);
        model->policy_ratio = newer->policy_ratio;
    }
    if (newer->knee.n)
        model->knee = newer->knee;
    return 0;
}

int profile_merge(struct profile *p, const struct profile *newer, struct err *err)
{
    int rc = 0;
    if (newer->n_rates) {
        memcpy(p->rate, newer->rate, sizeof p->rate);
        p->n_rates = newer->n_rates;
        p->read_gb_s = newer->read_gb_s;
        memcpy(p->peak_gop_s, newer->peak_gop_s, sizeof p->peak_gop_s);
    }
    for (size_t i = 0; rc == 0 && i < newer->n_curves; i++)
        rc = profile_put_curve(p, &newer->curve[i], err);
    for (size_t i = 0; rc == 0 && i < newer->n_tuned; i++)
        rc = profile_put_T(p, &newer->tuned[i], err);
    for (size_t i = 0; rc == 0 && i < newer->n_specs; i++)
        rc = profile_put_spec(p, &newer->spec[i], err);
    for (size_t i = 0; rc == 0 && i < newer->n_models; i++)
        rc = merge_model(p, &newer->model[i], err);
    return rc;
}

/* ---- reading ---- */

enum { MAX_WORDS = 12 };

/* Splits a value at blanks into words, in place. Returns their number, > MAX_WORDS: too many. */
static size_t split_words(char *value, char *word[MAX_WORDS])
{
    size_t n = 0;
    for (char *rest = value, *at; (at = strsep(&rest, " \t"));)
        if (*at) {
            if (n == MAX_WORDS)
                return n + 1;
            word[n++] = at;
        }
    return n;
}

static bool read_name(const char *text, char *name, size_t size)
{
    const size_t len = strlen(text);
    if (len == 0 || len >= size)
        return false;
    memcpy(name, text, len + 1);
    return true;
}

static bool read_count(const char *text, size_t *value)
{
    return parse_size(text, value) && *value >= 1 && *value <= (size_t)1 << 40;
}

/* Parses a "constant" line, a point of a rate curve: WHAT ATTN TYPE WIDTH G ROWS BATCH hot|cold
 * BYTES VALUE SPREAD SAMPLES. */
static bool read_point(char *value, struct rate_curve *like, struct curve_point *point)
{
    char *w[MAX_WORDS];
    int what = 0;
    if (split_words(value, w) != 12)
        return false;
    while (what < CURVE_WHATS && strcmp(w[0], rate_curve_name((enum curve_what)what)) != 0)
        what++;
    *like = (struct rate_curve){.what = (enum curve_what)what, .cold = strcmp(w[7], "cold") == 0};
    return what < CURVE_WHATS && read_name(w[1], like->attn, sizeof like->attn) &&
           cache_type_find(w[2], &like->type) && read_count(w[3], &like->width) &&
           read_count(w[4], &like->group) && read_count(w[5], &like->rows) &&
           read_count(w[6], &like->batch) && (like->cold || strcmp(w[7], "hot") == 0) &&
           parse_double(w[8], &point->bytes) && parse_double(w[9], &point->value) &&
           parse_double(w[10], &point->spread) && parse_size(w[11], &point->samples);
}

static int add_point(struct profile *p, char *value, struct err *err)
{
    struct rate_curve like;
    struct curve_point point;
    size_t i = 0;
    if (!read_point(value, &like, &point))
        return err_set(err, "a constant cannot be read");
    while (i < p->n_curves && !rate_curve_same(&p->curve[i], &like))
        i++;
    if (i == p->n_curves && profile_put_curve(p, &like, err) < 0)
        return -1;
    struct rate_curve *curve = &p->curve[i];
    if (curve->n == CURVE_POINTS)
        return err_set(err, "constant %s has more than %d sizes", rate_curve_name(like.what),
                       CURVE_POINTS);
    curve->at[curve->n++] = point;
    return 0;
}

/* Parses a "T" line, the fastest T of a configuration: ATTN TYPE WIDTH G LAYERS BATCH N T. */
static int add_T(struct profile *p, char *value, struct err *err)
{
    struct tuned_T t = {.attn = ""};
    char *w[MAX_WORDS];
    if (split_words(value, w) != 8 || !read_name(w[0], t.attn, sizeof t.attn) ||
        !cache_type_find(w[1], &t.type) || !read_count(w[2], &t.width) || !read_count(w[3], &t.group) ||
        !read_count(w[4], &t.layers) || !read_count(w[5], &t.batch) || !read_count(w[6], &t.N) ||
        !read_count(w[7], &t.T) || t.T > t.N)
        return err_set(err, "a line of the table of T cannot be read");
    return profile_put_T(p, &t, err);
}

/* Parses a "model" line, which adds a model: MODEL NAME (key and display name). */
static int add_model(struct profile *p, char *value, struct err *err)
{
    char *name = value + strcspn(value, " \t");
    if (*name)
        *name++ = 0;
    struct tuned_model *model = NULL;
    if (!*value || strlen(value) >= sizeof model->key)
        return err_set(err, "the name of a model cannot be read");
    model = profile_put_model(p, value, err);
    if (!model)
        return -1;
    name += strspn(name, " \t");
    return !*name || read_name(name, model->name, sizeof model->name)
               ? 0
               : err_set(err, "the name of a model is too long");
}

static bool read_real(const char *text, double min, double *value)
{
    return parse_double(text, value) && *value >= min && *value <= 1e12;
}

/* Splits the value into exactly `words` words and returns the model whose key the first one is; a
 * "model" line must have defined it. */
static struct tuned_model *model_of(struct profile *p, char *value, char *word[MAX_WORDS], size_t words)
{
    const bool right = split_words(value, word) == words;
    const struct tuned_model *model = right ? profile_model(p, word[0]) : NULL;
    return model ? &p->model[model - p->model] : NULL;
}

/* Parses a "policy" line, a model's fastest policy: MODEL POLICY RATIO LOWEST HIGHEST. */
static int add_policy(struct profile *p, char *value, struct err *err)
{
    char *w[MAX_WORDS];
    struct tuned_model *model = model_of(p, value, w, 5);
    if (!model || !read_name(w[1], model->policy, sizeof model->policy) ||
        !read_real(w[2], 1e-9, &model->policy_ratio.value) ||
        !read_real(w[3], 1e-9, &model->policy_ratio.lo) ||
        !read_real(w[4], 1e-9, &model->policy_ratio.hi))
        return err_set(err, "the policy of a model cannot be read");
    return 0;
}

/* Parses a "step_ms" line, the time of a step: MODEL TOKENS MS. A model's token counts ascend. */
static int add_step(struct profile *p, char *value, struct err *err)
{
    char *w[MAX_WORDS];
    size_t count;
    struct tuned_model *model = model_of(p, value, w, 3);
    struct batch_knee *knee = model ? &model->knee : NULL;
    if (!knee || knee->n == KNEE_COUNTS || !parse_size(w[1], &count) || count != knee_counts[knee->n] ||
        !read_real(w[2], 1e-9, &knee->step_ms[knee->n]))
        return err_set(err, "step_ms of a model cannot be read");
    knee->n++;
    batch_knee_judge(knee);
    return 0;
}

/* Parses a "batch_knee" line: MODEL TOKENS. Overrides the knee derived from step times. */
static int add_knee(struct profile *p, char *value, struct err *err)
{
    char *w[MAX_WORDS];
    size_t count;
    struct tuned_model *model = model_of(p, value, w, 2);
    if (!model || !read_count(w[1], &count) || count > 65536)
        return err_set(err, "batch_knee of a model cannot be read");
    model->knee.tokens = count;
    return 0;
}

/* Parses a "rate" line, peak rates of a kernel set: SET F32 BF16 INT8. */
static int add_rate(struct profile *p, char *value, struct err *err)
{
    struct tuned_rate rate = {.isa = ""};
    char *w[MAX_WORDS];
    bool right = split_words(value, w) == 1 + PEAK_KINDS && read_name(w[0], rate.isa, sizeof rate.isa);
    for (size_t kind = 0; right && kind < PEAK_KINDS; kind++)
        right = read_real(w[1 + kind], 0, &rate.gop_s[kind]);
    if (!right || p->n_rates == RATES_MOST)
        return err_set(err, "the rates of a kernel set cannot be read");
    p->rate[p->n_rates++] = rate;
    return 0;
}

/* Parses a "roof" line, rates of all threads: READ F32 BF16 INT8. */
static int add_roof(struct profile *p, char *value, struct err *err)
{
    char *w[MAX_WORDS];
    bool right = split_words(value, w) == 1 + PEAK_KINDS && read_real(w[0], 0, &p->read_gb_s);
    for (size_t kind = 0; right && kind < PEAK_KINDS; kind++)
        right = read_real(w[1 + kind], 0, &p->peak_gop_s[kind]);
    return right ? 0 : err_set(err, "the read rate and the peaks cannot be read");
}

/* Parses a "spec" line: TARGET DRAFT ATTN TYPE BATCH N T chain|tree TOKENS LEVELS EXPECTED. */
static int add_spec(struct profile *p, char *value, struct err *err)
{
    struct tuned_spec s = {.batch = 0};
    char *w[MAX_WORDS];
    if (split_words(value, w) != 11 || !read_name(w[0], s.target, sizeof s.target) ||
        !read_name(w[1], s.draft, sizeof s.draft) || !read_name(w[2], s.attn, sizeof s.attn) ||
        !cache_type_find(w[3], &s.type) || !read_count(w[4], &s.batch) || !read_count(w[5], &s.N) ||
        !read_count(w[6], &s.T) || s.T > s.N ||
        (strcmp(w[7], "chain") != 0 && strcmp(w[7], "tree") != 0) ||
        !parse_size(w[8], &s.shape.draft_tokens) || s.shape.draft_tokens >= TREE_NODES ||
        !parse_size(w[9], &s.shape.levels) || s.shape.levels > s.shape.draft_tokens + 1 ||
        !read_real(w[10], 1, &s.tokens))
        return err_set(err, "a line of speculation cannot be read");
    s.shape.tree = strcmp(w[7], "tree") == 0;
    if (s.shape.tree && (s.shape.levels < 2 || s.shape.draft_tokens < 2))
        return err_set(err, "a line of speculation has a tree without levels");
    return profile_put_spec(p, &s, err);
}

/* Keys that may occur more than once, with the functions that parse their values. */
static const struct {
    const char *key;
    int (*add)(struct profile *profile, char *value, struct err *err);
    size_t since; /* first version of the format that has the key */
} lines[] = {{"constant", add_point, 1}, {"T", add_T, 1},          {"model", add_model, 2},
             {"policy", add_policy, 2},  {"step_ms", add_step, 2}, {"batch_knee", add_knee, 2},
             {"free_rows", add_knee, 2}, {"rate", add_rate, 2},    {"spec", add_spec, 3},
             {"roof", add_roof, 3}};

static int read_entry(struct profile *p, const struct conf_entry *e, size_t version, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(lines); i++)
        if (strcmp(e->key, lines[i].key) == 0 && version >= lines[i].since)
            return lines[i].add(p, e->value, err);
    return 0;
}

static int read_entries(struct profile *p, const struct conf *conf, size_t version, struct err *err)
{
    for (size_t i = 0; i < conf->n_entries; i++)
        if (read_entry(p, &conf->entry[i], version, err) < 0)
            return err_prefix(err, "%s: line %d", conf->name, conf->entry[i].line);
    for (size_t i = 0; i < p->n_curves; i++)
        if (rate_curve_check(&p->curve[i], err) < 0)
            return err_prefix(err, "%s", conf->name);
    return 0;
}

static int read_text(const struct conf *conf, const char *key, char *text, size_t size, struct err *err)
{
    const char *value = conf_get(conf, key);
    if (!value || !read_name(value, text, size))
        return err_set(err, "%s: has no usable line \"%s\"", conf->name, key);
    return conf_get_once(conf, key, err) ? 0 : -1;
}

static int read_profile(struct profile *p, const struct conf *conf, struct err *err)
{
    struct machine *m = &p->machine;
    size_t version;
    if (conf_get_size(conf, "bmc_profile", 0, SIZE_MAX, &version, err) < 0)
        return -1;
    if (version < 1 || version > PROFILE_VERSION)
        return err_set(err,
                       "%s: of version %zu, this program reads versions 1 to %d; run bmc-tune again",
                       conf->name, version, PROFILE_VERSION);
    if (read_text(conf, "cpu", m->cpu, sizeof m->cpu, err) < 0 ||
        read_text(conf, "isa", m->isa, sizeof m->isa, err) < 0 ||
        read_text(conf, "alloc", m->alloc, sizeof m->alloc, err) < 0 ||
        conf_get_size(conf, "cores", 1, 1 << 20, &m->cores, err) < 0 ||
        conf_get_size(conf, "threads", 1, 1 << 20, &m->threads, err) < 0 ||
        conf_get_size(conf, "page_size", 1, 1 << 30, &m->page_size, err) < 0)
        return -1;
    return read_entries(p, conf, version, err);
}

int profile_parse(struct profile *p, const char *text, size_t size, const char *name, struct err *err)
{
    struct conf conf;
    *p = (struct profile){0};
    if (conf_parse(&conf, text, size, name, err) < 0)
        return -1;
    const int rc = read_profile(p, &conf, err);
    conf_release(&conf);
    if (rc < 0)
        profile_release(p);
    return rc;
}

/* Reads what a regular file has now: it may be replaced or truncated meanwhile. */
static int read_profile_file(int fd, const char *path, struct buf *text, struct err *err)
{
    struct stat st;
    ssize_t n;
    if (fstat(fd, &st) < 0)
        return err_errno(err, "%s: cannot be read", path);
    if (!S_ISREG(st.st_mode))
        return err_set(err, "%s: is not a regular file", path);
    if (st.st_size > PROFILE_BYTES)
        return err_set(err, "%s: longer than %d bytes, no profile", path, PROFILE_BYTES);
    if (buf_reserve(text, (size_t)st.st_size, err) < 0)
        return -1;
    while ((n = pread(fd, text->data + text->len, (size_t)st.st_size - text->len, (off_t)text->len)) >
           0)
        text->len += (size_t)n;
    return n < 0 ? err_errno(err, "%s: cannot be read", path) : 0;
}

int profile_open(struct profile *p, const char *path, bool *found, struct err *err)
{
    AUTO(buf_release) struct buf text = {0};
    *p = (struct profile){0};
    *found = true;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        *found = errno != ENOENT && errno != ENOTDIR;
        return *found ? err_errno(err, "%s: cannot be opened", path) : 0;
    }
    int rc = read_profile_file(fd, path, &text, err);
    close(fd);
    return rc < 0 ? -1 : profile_parse(p, buf_text(&text), text.len, path, err);
}

/* ---- writing ---- */

static int write_curve(const struct rate_curve *c, struct buf *text, struct err *err)
{
    for (size_t i = 0; i < c->n; i++)
        if (buf_addf(text, err, "constant %s %s %s %zu %zu %zu %zu %s %.12g %.9g %.4g %zu\n",
                     rate_curve_name(c->what), c->attn, cache_type_name(c->type), c->width, c->group,
                     c->rows, c->batch, c->cold ? "cold" : "hot", c->at[i].bytes, c->at[i].value,
                     c->at[i].spread, c->at[i].samples) < 0)
            return -1;
    return 0;
}

static int write_rows(const struct tuned_model *m, struct buf *text, struct err *err)
{
    if (!m->knee.n)
        return 0;
    for (size_t i = 0; i < m->knee.n; i++)
        if (buf_addf(text, err, "step_ms %s %zu %.6g\n", m->key, knee_counts[i], m->knee.step_ms[i]) <
            0)
            return -1;
    if (buf_addf(text, err, "batch_knee %s %zu\n", m->key, m->knee.tokens) < 0)
        return -1;
    for (size_t i = 0; i < KNEE_ACCEPTANCES; i++) {
        double speedup;
        const size_t k = batch_knee_k(&m->knee, knee_acceptance[i], &speedup);
        if (buf_addf(text, err, "k_for %s %g %zu\n", m->key, knee_acceptance[i], k) < 0)
            return -1;
    }
    return 0;
}

static int write_model(const struct tuned_model *m, struct buf *text, struct err *err)
{
    if (buf_addf(text, err, "model %s%s%s\n", m->key, m->name[0] ? " " : "", m->name) < 0 ||
        (m->policy[0] && buf_addf(text, err, "policy %s %s %.4g %.4g %.4g\n", m->key, m->policy,
                                  m->policy_ratio.value, m->policy_ratio.lo, m->policy_ratio.hi) < 0))
        return -1;
    return write_rows(m, text, err);
}

static int write_rates(const struct profile *p, struct buf *text, struct err *err)
{
    int rc = p->n_rates ? buf_addf(text, err,
                                   "# rate SET F32 BF16 INT8: 10^9 operations a second on one core; "
                                   "the default kernel set follows from them\n")
                        : 0;
    for (size_t i = 0; rc == 0 && i < p->n_rates; i++)
        rc = buf_addf(text, err, "rate %s %.4g %.4g %.4g\n", p->rate[i].isa, p->rate[i].gop_s[PEAK_F32],
                      p->rate[i].gop_s[PEAK_BF16], p->rate[i].gop_s[PEAK_INT8]);
    if (rc == 0 && p->read_gb_s > 0)
        rc = buf_addf(text, err,
                      "# roof READ F32 BF16 INT8: 10^9 bytes, and operations, a second on all threads\n"
                      "roof %.4g %.4g %.4g %.4g\n",
                      p->read_gb_s, p->peak_gop_s[PEAK_F32], p->peak_gop_s[PEAK_BF16],
                      p->peak_gop_s[PEAK_INT8]);
    return rc;
}

static int write_T(const struct tuned_T *t, struct buf *text, struct err *err)
{
    return buf_addf(text, err, "T %s %s %zu %zu %zu %zu %zu %zu\n", t->attn, cache_type_name(t->type),
                    t->width, t->group, t->layers, t->batch, t->N, t->T);
}

static int write_spec(const struct tuned_spec *s, struct buf *text, struct err *err)
{
    return buf_addf(text, err, "spec %s %s %s %s %zu %zu %zu %s %zu %zu %.4g\n", s->target, s->draft,
                    s->attn, cache_type_name(s->type), s->batch, s->N, s->T,
                    s->shape.tree ? "tree" : "chain", s->shape.draft_tokens, s->shape.levels,
                    s->tokens);
}

int profile_write(const struct profile *p, struct buf *text, struct err *err)
{
    const struct machine *m = &p->machine;
    int rc = buf_addf(
        text, err,
        "# What bmc-tune found out about this machine; see bmc-tune(1). Written anew by every run.\n"
        "bmc_profile %d\ncpu %s\ncores %zu\nthreads %zu\nisa %s\npage_size %zu\nalloc %s\n"
        "# model MODEL NAME, policy MODEL POLICY RATIO LOWEST HIGHEST, step_ms MODEL ROWS MS, "
        "batch_knee MODEL ROWS, k_for MODEL PROBABILITY CANDIDATES\n",
        PROFILE_VERSION, m->cpu, m->cores, m->threads, m->isa, m->page_size, m->alloc);
    if (rc == 0)
        rc = write_rates(p, text, err);
    for (size_t i = 0; rc == 0 && i < p->n_models; i++)
        rc = write_model(&p->model[i], text, err);
    if (rc == 0)
        rc = buf_addf(
            text, err,
            "# constant NAME ATTENTION TYPE WIDTH GROUP ROWS BATCH STATE BYTES VALUE SPREAD SAMPLES\n");
    for (size_t i = 0; rc == 0 && i < p->n_curves; i++)
        rc = write_curve(&p->curve[i], text, err);
    if (rc == 0)
        rc = buf_addf(text, err, "# T ATTENTION TYPE WIDTH GROUP LAYERS BATCH N T\n");
    for (size_t i = 0; rc == 0 && i < p->n_tuned; i++)
        rc = write_T(&p->tuned[i], text, err);
    if (rc == 0 && p->n_specs)
        rc = buf_addf(
            text, err,
            "# spec TARGET DRAFT ATTENTION TYPE BATCH N T SHAPE DRAFT_TOKENS LEVELS EXPECTED\n");
    for (size_t i = 0; rc == 0 && i < p->n_specs; i++)
        rc = write_spec(&p->spec[i], text, err);
    return rc;
}

int profile_save(const struct profile *p, const char *path, struct err *err)
{
    AUTO(buf_release) struct buf text = {0};
    int rc = profile_write(p, &text, err);
    if (rc == 0 && text.len > PROFILE_BYTES)
        rc = err_set(err, "%s: would have %zu bytes, a profile has no more than %d: give another name",
                     path, text.len, PROFILE_BYTES);
    return rc < 0 ? -1 : outfile_save(path, text.data, text.len, err);
}

/* ---- queries ---- */

struct tune_query tune_query_of(const struct tune_run *run, size_t batch, size_t N)
{
    return (struct tune_query){.attn = tune_attn_name(run->backend, run->attn),
                               .type = run->type,
                               .heads = run->heads,
                               .kv_heads = run->kv_heads,
                               .head_dim = run->head_dim,
                               .v_dim = run->v_dim,
                               .layers = 1,
                               .batch = batch,
                               .N = N,
                               .k = run->k,
                               .m = run->m,
                               .hot = run->evictor == NULL};
}

static const struct rate_curve *closest_curve(const struct profile *p, enum curve_what what,
                                              const char *attn, const struct tune_query *q)
{
    struct rate_curve like = {
        .what = what,
        .type = q->type,
        .width = q->heads * q->head_dim,
        .group = q->heads / q->kv_heads,
        .rows = what == CURVE_SDPA ? q->k : 1,
        .batch = what == CURVE_SDPA ? q->batch : 1,
        .cold = !q->hot,
    };
    snprintf(like.attn, sizeof like.attn, "%s", attn);
    return rate_curve_find(p->curve, p->n_curves, &like);
}

bool profile_cost_config(const struct profile *p, const struct tune_query *q, struct cost_config *cell)
{
    *cell = (struct cost_config){
        .N = q->N,
        .layers = q->layers,
        .batch = q->batch,
        .width = q->heads * q->head_dim,
        .row_bytes = (q->v_dim ? 1.0 : 2.0) * (double)q->kv_heads *
                     (double)dtype_row_bytes(q->type, q->head_dim),
        .gq = (double)(q->heads / q->kv_heads), /* Q = 1: copying was measured at this type */
        .k = (double)q->k,
        .m = (double)q->m,
        .copy = closest_curve(p, CURVE_COPY, "-", q),
        .sdpa = closest_curve(p, CURVE_SDPA, q->attn, q),
        .alloc = closest_curve(p, CURVE_ALLOC, "-", q),
    };
    return cell->copy && cell->sdpa;
}

size_t profile_T(const struct profile *p, const struct tune_query *q, enum kv_T_from *from)
{
    const struct tuned_T *t = p->tuned;
    struct cost_config cell;
    struct cost_answer answer;
    struct err ignored;
    *from = KV_T_PROFILE;
    for (size_t i = 0; i < p->n_tuned && q->k == 1; i++, t++)
        if (strcmp(t->attn, q->attn) == 0 && t->type == q->type && t->width == q->heads * q->head_dim &&
            t->group == q->heads / q->kv_heads && t->layers == q->layers && t->batch == q->batch &&
            t->N == q->N)
            return t->T;
    *from = KV_T_FORMULA;
    if (!profile_cost_config(p, q, &cell) || cost_answer(&cell, &answer, &ignored) < 0)
        return 0;
    return answer.pow2;
}

/* T with speculation; in other contexts than the measured one as the square root of N (BMC paper,
 * VI-B), to the next lower power of two. */
static size_t spec_T(const struct tuned_spec *spec, size_t N, enum kv_T_from *from)
{
    const double T = (double)spec->T * sqrt((double)N / (double)spec->N);
    size_t power = 1;
    *from = spec->N == N ? KV_T_PROFILE : KV_T_FORMULA;
    while (2 * (double)power <= T && 2 * power <= N)
        power *= 2;
    return spec->N == N ? spec->T : power;
}

static size_t tuner_pick(const struct kv_tuner *tuner, const struct kv_shape *shape, size_t n_seqs,
                         enum kv_T_from *from)
{
    const struct profile_tuner *own = (const void *)tuner;
    if (own->spec)
        return spec_T(own->spec, shape->max_rows, from);
    const struct tune_query query = {
        .attn = own->attn,
        .type = shape->sizes[0].type[KV_K],
        .heads = own->heads,
        .kv_heads = shape->sizes[0].kv_heads,
        .head_dim = shape->sizes[0].head_dim,
        .v_dim = shape->sizes[0].v_dim,
        .layers = shape->layers,
        .batch = n_seqs,
        .N = shape->max_rows,
        .k = 1,
        .m = 1,
    };
    return profile_T(own->profile, &query, from);
}

struct profile_tuner profile_tuner(const struct profile *profile, const char *attn, size_t heads)
{
    return (struct profile_tuner){{tuner_pick}, NULL, profile, attn, heads};
}

/* ---- a profile and the model's entry in it ---- */

static int read_of_machine(struct tuned *tuned, const char *path, const struct machine *here,
                           struct err *err)
{
    if (profile_open(&tuned->profile, path, &tuned->found, err) < 0)
        return -1;
    const struct profile *p = &tuned->profile;
    struct kv_spec spec;
    int rc = tuned->found ? profile_check_machine(p, here, err) : 0;
    for (size_t i = 0; rc == 0 && i < p->n_models; i++)
        if (p->model[i].policy[0])
            rc = kv_spec_parse(&spec, p->model[i].policy, err);
    return rc < 0 ? err_prefix(err, "%s", path) : 0;
}

int tuned_read(struct tuned *tuned, const char *path, const struct machine *here, bool *exists,
               struct err *err)
{
    *tuned = (struct tuned){.found = false};
    if (read_of_machine(tuned, path, here, err) < 0)
        return -1;
    *exists = tuned->found;
    tuned->found = tuned->found && machine_same_settings(&tuned->profile.machine, here);
    return 0;
}

void tuned_close(struct tuned *tuned)
{
    profile_release(&tuned->profile);
    *tuned = (struct tuned){.found = false};
}

const struct kv_tuner *tuned_for(struct tuned *tuned, const char *attn, size_t heads)
{
    tuned->tuner = profile_tuner(&tuned->profile, attn, heads);
    return tuned->found ? &tuned->tuner.tuner : NULL;
}

void tuned_select(struct tuned *tuned, const struct hash *model_id)
{
    hash_hex(model_id, HASH_BYTES, tuned->target);
    tuned->model = tuned->found ? profile_model(&tuned->profile, tuned->target) : NULL;
}

const char *tuned_policy(const struct tuned *tuned)
{
    return tuned->model && tuned->model->policy[0] ? tuned->model->policy : NULL;
}

const struct tuned_spec *tuned_speculation(const struct tuned *tuned, const struct hash *draft_id,
                                           struct tuned_spec like)
{
    memcpy(like.target, tuned->target, sizeof tuned->target);
    strcpy(like.draft, "-");
    if (draft_id)
        hash_hex(draft_id, HASH_BYTES, like.draft);
    return tuned->found ? profile_spec(&tuned->profile, &like) : NULL;
}

void tuned_use_speculation(struct tuned *tuned, const struct tuned_spec *spec)
{
    tuned->tuner.spec = spec;
}

size_t tuned_batch_knee(const struct tuned *tuned)
{
    return tuned->model ? tuned->model->knee.tokens : 0;
}
