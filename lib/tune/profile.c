/* Reading the tuned profile. */
#include "tune/profile.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "quant/cache_types.h"
#include "base/file.h"
#include "base/number.h"

enum { MAX_WORDS = 12 };

/* Splits a value at blanks into words, in place. Returns their number, > MAX_WORDS: too many. */
static size_t split(char *value, char *word[MAX_WORDS])
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
    if (split(value, w) != 12)
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
    if (split(value, w) != 8 || !read_name(w[0], t.attn, sizeof t.attn) ||
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
    const bool right = split(value, word) == words;
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
    bool right = split(value, w) == 1 + PEAK_KINDS && read_name(w[0], rate.isa, sizeof rate.isa);
    for (size_t kind = 0; right && kind < PEAK_KINDS; kind++)
        right = read_real(w[1 + kind], 0, &rate.gop_s[kind]);
    if (!right || p->n_rates == RATES_MOST)
        return err_set(err, "the rates of a kernel set cannot be read");
    p->rate[p->n_rates++] = rate;
    return 0;
}

/* Parses a "spec" line: TARGET DRAFT ATTN TYPE BATCH N T chain|tree TOKENS LEVELS EXPECTED. */
static int add_spec(struct profile *p, char *value, struct err *err)
{
    struct tuned_spec s = {.batch = 0};
    char *w[MAX_WORDS];
    if (split(value, w) != 11 || !read_name(w[0], s.target, sizeof s.target) ||
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
             {"free_rows", add_knee, 2}, {"rate", add_rate, 2},    {"spec", add_spec, 3}};

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

static int read_all(struct profile *p, const struct conf *conf, struct err *err)
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
    const int rc = read_all(p, &conf, err);
    conf_release(&conf);
    if (rc < 0)
        profile_release(p);
    return rc;
}

static int read_file(int fd, const char *path, struct buf *text, struct err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_errno(err, "%s: cannot be read", path);
    if (!S_ISREG(st.st_mode))
        return err_set(err, "%s: is not a regular file", path);
    for (;;) {
        if (buf_reserve(text, 1 << 16, err) < 0)
            return -1;
        const ssize_t n = read(fd, text->data + text->len, 1 << 16);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(err, "%s: cannot be read", path);
        if (n == 0)
            return 0;
        text->len += (size_t)n;
        if (text->len > PROFILE_BYTES)
            return err_set(err, "%s: longer than %d bytes, no profile", path, PROFILE_BYTES);
    }
}

int profile_open(struct profile *p, const char *path, bool *found, struct err *err)
{
    struct buf text = {0};
    *p = (struct profile){0};
    *found = true;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        *found = errno != ENOENT && errno != ENOTDIR;
        return *found ? err_errno(err, "%s: cannot be opened", path) : 0;
    }
    int rc = read_file(fd, path, &text, err);
    close(fd);
    if (rc == 0)
        rc = profile_parse(p, buf_text(&text), text.len, path, err);
    buf_release(&text);
    return rc;
}
