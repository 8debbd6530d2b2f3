/* Collects an importance matrix over random tokens. */
#include "convert/convert_cmd.h"

#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "decode/score.h"
#include "format/detect.h"
#include "model/imatrix_collect.h"

enum { TOKENS = 512 };

/* Opens a file that has no name, in the folder of `path` if that can have one and `path` is no device, else where
 * temporary files are; sets `name` to a path of the descriptor. */
static int open_unnamed(const char *path, char name[32], struct err *err)
{
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", path ? path : "-");
    struct stat at;
    const bool device = stat(folder, &at) == 0 && !S_ISREG(at.st_mode);
    int fd = device ? -1 : open(dirname(folder), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    FILE *file = fd < 0 ? tmpfile() : NULL;
    if (file) {
        fd = dup(fileno(file));
        fclose(file);
    }
    if (fd < 0)
        return err_errno(err, "cannot create a temporary file");
    snprintf(name, 32, "/dev/fd/%d", fd);
    return fd;
}

static int ignore_token(void *arg, const struct text_ids *text, size_t pos, double logprob,
                        struct err *err)
{
    (void)arg, (void)text, (void)pos, (void)logprob, (void)err;
    return 0;
}

/* Runs random tokens through a model; the observer sees the inputs of its matrices. */
static int run_random(const struct model *model, struct imatrix_collect *collect, int threads,
                      struct err *err)
{
    const size_t n = size_min(TOKENS, model->config.context),
                 vocab = model->tok ? tokenizer_vocab(model->tok) : model->config.vocab;
    struct session *session = NULL;
    struct session_options options = {.context = n,
                                      .batch = 1,
                                      .chunk = n,
                                      .threads = threads,
                                      .threads_prefill = threads,
                                      .cpu = {.precision = PRECISION_F32}};
    if (!(options.cpu.kernels = kernels_select(NULL, err)) ||
        !(options.cpu.attn = attn_find(NULL, err)) || kv_spec_parse(&options.kv, "upfront", err) < 0 ||
        session_open(&session, model, &options, err) < 0)
        return -1;
    forward_observe(session_pass(session), imatrix_collect_add, collect);
    uint32_t id[TOKENS];
    uint64_t draw = 1;
    for (size_t i = 0; i < n; i++) {
        draw = draw * 6364136223846793005u + 1442695040888963407u;
        id[i] = (uint32_t)((draw >> 33) % vocab);
    }
    const volatile sig_atomic_t never = 0;
    struct score_stats stats = {0};
    const int rc = score_ids(session, 0, id, n, ignore_token, NULL, &never, &stats, err);
    session_close(session);
    return rc;
}

static int collect_random(struct imatrix_weights *weights, const struct model *model, const char *out,
                          int threads, struct err *err)
{
    struct imatrix_collect *collect;
    char name[32];
    if (config_is_draft_head(&model->config))
        return err_set(
            err,
            "%s: is a draft head, which runs on its target's hidden states only, so that it cannot "
            "be calibrated",
            model->name);
    if (imatrix_collect_open(&collect, model, err) < 0)
        return -1;
    int rc = run_random(model, collect, threads, err);
    const int fd = rc == 0 ? open_unnamed(out, name, err) : -1;
    if (fd >= 0 &&
        imatrix_collect_save(collect, name, size_min(TOKENS, model->config.context), err) == 0)
        rc = imatrix_weights_open(weights, name, err);
    else
        rc = -1;
    if (rc == 0)
        weights->path = "--calibrate";
    if (fd >= 0)
        close(fd);
    imatrix_collect_close(collect);
    return rc;
}

/* Options of the source as it is. */
static struct convert_options plain_options(const struct convert_options *options)
{
    return (struct convert_options){.models_dir = options->models_dir,
                                    .family = options->family,
                                    .types = {.type = DTYPE_COUNT},
                                    .chat = options->chat,
                                    .no_bos = options->no_bos};
}

static int count_weights(void *arg, const struct planned_tensor *tensor, struct err *err)
{
    size_t *weights = arg, n = 1;
    (void)err;
    for (size_t i = 0; i < tensor->n_dims; i++)
        n *= tensor->shape[i];
    *weights += n;
    return 0;
}

size_t convert_count_weights(const char *source, const struct convert_options *options)
{
    struct convert_options plain = plain_options(options);
    struct hash model_id;
    struct err err;
    size_t weights = 0;
    plain.dry_run = true;
    plain.planned = count_weights;
    plain.planned_arg = &weights;
    return convert_folder(source, NULL, &plain, &model_id, &err) < 0 ? 0 : weights;
}

int opened_source_open(struct opened_source *opened, const char *source, const char *out,
                       const struct convert_options *options, struct err *err)
{
    const struct convert_options plain = plain_options(options);
    struct hash model_id;
    char name[32];
    *opened = (struct opened_source){.fd = -1};
    if (path_detect(source) != KIND_MODEL) {
        opened->fd = open_unnamed(out, name, err);
        if (opened->fd < 0 || convert_folder(source, name, &plain, &model_id, err) < 0)
            return -1;
    }
    kernels_setup();
    return model_open_any(&opened->model, opened->fd >= 0 ? name : source, source, err);
}

void opened_source_close(struct opened_source *opened)
{
    model_close(opened->model);
    if (opened->fd >= 0)
        close(opened->fd);
}

int convert_calibrate(struct imatrix_weights *weights, const char *source, const char *out,
                      const struct convert_options *options, int threads, struct err *err)
{
    struct opened_source opened;
    const int rc = opened_source_open(&opened, source, out, options, err) < 0
                       ? -1
                       : collect_random(weights, opened.model, out, threads, err);
    opened_source_close(&opened);
    return rc;
}
