/* The ranks of a run that have parts of one model. */
#include "gen_split.h"

#include <stdio.h>
#include <stdlib.h>

#include "gen_ranks.h"
#include "model/part_take.h"
#include "text/ids.h"

bool gen_follows(const struct gen *gen) { return gen_splits_model(gen) && gen->ranks->rank > 0; }

static int refuse(const struct gen_options *o, struct err *err)
{
    const char *option = o->load_kv           ? "load-kv"
                         : o->save_kv         ? "save-kv"
                         : o->prompt_cache    ? "prompt-cache"
                         : o->save_importance ? "save-importance"
                                              : NULL;
    return option
               ? err_set(err,
                         "--%s needs all of a model in one process: run it without mpirun and --split",
                         option)
               : 0;
}

/* --layers 10,12: those of each rank. */
static int take_layers(struct gen *gen, const char *list, struct err *err)
{
    const size_t size = (size_t)gen->ranks->size;
    struct ids ids = {0};
    size_t *count = mem_zalloc(size, sizeof *count);
    int rc = -1;
    if (!count)
        err_set(err, "out of memory");
    else if (ids_parse(&ids, list, err) < 0 || ids.len != size)
        err_set(err,
                "--layers \"%s\": a number of layers for each of the %zu ranks is expected, as 10,12",
                list, size);
    else
        rc = 0;
    for (size_t r = 0; rc == 0 && r < size; r++)
        count[r] = ids.id[r];
    if (rc == 0)
        rc = part_take_layers(gen->model, gen->ranks, count, err);
    ids_release(&ids);
    free(count);
    return rc;
}

static int take(struct gen *gen, struct err *err)
{
    const char *layers = gen->options->layers;
    if (gen->split == SPLIT_TENSOR)
        return part_take(gen->model, gen->ranks, err);
    return layers ? take_layers(gen, layers, err) : part_take_layers(gen->model, gen->ranks, NULL, err);
}

int gen_split(struct gen *gen, struct err *err)
{
    if (!gen_splits_model(gen))
        return 0;
    if (refuse(gen->options, err) < 0 || take(gen, err) < 0 ||
        (gen->options->mlock && part_lock(gen->model, err) < 0))
        return -1;
    if (!gen_follows(gen)) {
        lead_open(&gen->lead, gen->ranks);
        gen->leads = true;
    }
    return 0;
}

int gen_open_pipe(struct gen *gen, struct err *err)
{
    const size_t groups = gen->options->in_flight;
    if (gen->strategy || !session_flies(&gen->session))
        return 0;
    if (step_pipe_open(&gen->pipe, &gen->session, groups ? groups : (size_t)gen->ranks->size, err) < 0)
        return -1;
    gen->strategy = step_pipe_strategy(gen->pipe);
    return 0;
}

int gen_end_split(struct gen *gen, int rc, struct err *err)
{
    if (gen->leads && (rc == 0 || gen->over) && lead_end(&gen->lead, err) < 0)
        rc = -1;
    lead_close(&gen->lead);
    step_pipe_close(gen->pipe);
    return rc;
}

/* ---- statistics ---- */

int gen_count_split(struct gen *gen, struct err *err)
{
    return gen->leads
               ? lead_counts(&gen->lead, forward_waited_ms(&gen->session.forward), &gen->sent, err)
               : 0;
}

static double per_token(const struct gen *gen, size_t tokens)
{
    return tokens ? (double)gen->sent.sent_bytes / (double)tokens : 0;
}

void gen_print_split(const struct gen *gen, size_t tokens)
{
    const struct lead_counts *sent = &gen->sent;
    if (gen->leads)
        fprintf(stderr,
                "sent by ranks    = %10.0f bytes per token, %.2f MiB in all; each waited %.2f ms; the "
                "largest had %.2f MiB\n",
                per_token(gen, tokens), (double)sent->sent_bytes / 1048576, sent->wait_ms,
                (double)sent->peak_bytes / 1048576);
}

int gen_put_split(const struct gen *gen, size_t tokens, json_t *object, struct err *err)
{
    const struct lead_counts *sent = &gen->sent;
    const struct {
        const char *name;
        bool whole; /* number */
        double value;
    } fields[] = {
        {"sent_bytes", true, (double)sent->sent_bytes},
        {"sent_bytes_per_token", false, per_token(gen, tokens)},
        {"sent_calls", true, (double)sent->calls},
        {"rank_wait_ms", false, sent->wait_ms},
        {"rank_peak_bytes", true, (double)sent->peak_bytes},
    };
    int rc = 0;
    for (size_t i = 0; i < ARRAY_LEN(fields) && rc == 0; i++) {
        json_t *value = !gen->leads       ? json_null()
                        : fields[i].whole ? json_integer((json_int_t)fields[i].value)
                                          : json_real(fields[i].value);
        rc = json_put(object, fields[i].name, value, err);
    }
    return rc;
}
