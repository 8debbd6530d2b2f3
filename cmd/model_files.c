/* Files of options that change a model. */
#include "model_files.h"

#include "base/number.h"
#include "cli.h"
#include "model/lora/lora_open.h"
#include "tuned.h"
#include "userdir.h"

/* Cuts ":SCALE" off a path, unless a file has the whole name; returns the scale, 1 if there is none. */
static double cut_scale(char *path)
{
    char *colon = strrchr(path, ':');
    double scale;
    if (!colon || file_exists(path) || !parse_double(colon + 1, &scale) || !isfinite(scale))
        return 1;
    *colon = 0;
    return scale;
}

static int open_adapter(struct model *model, const char *given, const char *models_dir, struct err *err)
{
    char *path = strdup(given);
    if (!path)
        return err_no_memory(err, "the name of an adapter");
    const double scale = cut_scale(path);
    const int rc = lora_open(model, path, scale, models_dir, err);
    free(path);
    return rc < 0 ? err_prefix(err, "--lora") : 0;
}

int cli_open_adapters(struct model *model, char *const *given, size_t n, struct err *err)
{
    char models_dir[8192];
    if (!n)
        return 0;
    if (n > LORAS_MAX)
        return err_set(err, "--lora: %zu adapters are given, at most %d are supported", n, LORAS_MAX);
    if (cli_models_dir(models_dir, sizeof models_dir, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        if (open_adapter(model, given[i], models_dir, err) < 0)
            return -1;
    return 0;
}

int cli_open_heads(struct kv_streaming *heads, const char *path, const struct config *config,
                   struct err *err)
{
    const struct cache_types f32 = cache_types_alike(DTYPE_F32);
    const struct kv_shape shape = config_kv_shape(config, 1, &f32);
    if (shape.layers < config->layers || shape.n_sizes > 1)
        return err_set(err, "--retrieval-heads needs a model whose layers all have KV entries of their "
                            "own, and heads of one size");
    return kv_streaming_open(heads, path, config->layers, config->kv_heads, err);
}

bool cli_cache_types_path(const struct model *model, char *path, size_t size)
{
    char id[17], name[40];
    hash_hex(&model->file.model_id, 8, id);
    snprintf(name, sizeof name, "cache-types-%s", id);
    return userdir_path(USER_CONFIG, name, path, size);
}

int cli_choose_cache_types(struct kv_chosen_types *chosen, const char *text, const struct model *model,
                           const struct program *program, bool quiet, struct err *err)
{
    const struct cache_types f32 = cache_types_alike(DTYPE_F32);
    const struct kv_shape shape = config_kv_shape(&model->config, 1, &f32);
    AUTO(buf_release) struct buf types = {0};
    char path[8192];
    if (kv_chosen_types_open(chosen, text, cli_cache_types_path(model, path, sizeof path) ? path : NULL,
                             &shape, &model->file.model_id, err) < 0)
        return -1;
    const struct cache_types all = kv_chosen_types_of(chosen);
    if (cache_types_add(&types, &all, err) < 0)
        return -1;
    if (!quiet)
        cli_say(stderr, "%s: --cache-kld %s: predicted mean KL divergence %.3g, cache types %s\n",
                program->name, text, chosen->kld, buf_text(&types));
    return 0;
}
