/* LoRA adapters of bmc-gen and bmc-spec: --lora FILE[:SCALE]. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/number.h"
#include "gen/gen.h"
#include "gen/gen_parallel.h"
#include "model/lora/lora_open.h"

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

static int open_one(struct gen *gen, const char *given, const char *models_dir, struct err *err)
{
    char *path = strdup(given);
    if (!path)
        return err_no_memory(err, "the name of an adapter");
    const double scale = cut_scale(path);
    const int rc = lora_open(gen->model, path, scale, models_dir, err);
    free(path);
    return rc < 0 ? err_prefix(err, "--lora") : 0;
}

int gen_open_lora(struct gen *gen, struct err *err)
{
    const struct opt_list *list = &gen->options->lora;
    char models_dir[8192];
    if (!list->n)
        return 0;
    if (list->n > LORAS_MAX)
        return err_set(err, "--lora: %zu adapters are given, at most %d are supported", list->n,
                       LORAS_MAX);
    if (gen_is_model_parallel(gen))
        return err_set(err, "--lora needs the whole model in each process: use --parallelism data");
    if (cli_models_dir(models_dir, sizeof models_dir, err) < 0)
        return -1;
    for (size_t i = 0; i < list->n; i++)
        if (open_one(gen, list->text[i], models_dir, err) < 0)
            return -1;
    return 0;
}
