/* Tensor and pipeline parallelism of bmc-gen and bmc-spec. */
#include "gen/gen_parallel.h"

#include <stdio.h>
#include <stdlib.h>

#include "decode/replica.h"
#include "gen/gen_ranks.h"
#include "model/parallel/shard_weights.h"
#include "text/ids.h"

bool gen_is_replica(const struct gen *gen)
{
    return gen_is_model_parallel(gen) && gen->ranks->rank > 0;
}

int gen_replicate(struct gen *gen, struct err *err)
{
    struct session_options options;
    return gen_session_options(gen, &options, err) < 0 ? -1 : replicate(gen->model, &options, err);
}

static int check_options(const struct gen_options *o, struct err *err)
{
    const char *option = o->load_kv        ? "load-kv"
                         : o->save_kv      ? "save-kv"
                         : o->prompt_cache ? "prompt-cache"
                         : o->save_imatrix ? "save-imatrix"
                                           : NULL;
    return option
               ? err_set(
                     err,
                     "--%s needs the whole model in one process: run without mpirun and --parallelism",
                     option)
               : 0;
}

/* Reduces the model to this rank's layers under --layers LIST, the number of layers of each rank:
 * "10,12". */
static int shard_by_list(struct gen *gen, const char *list, struct err *err)
{
    const size_t size = (size_t)gen->ranks->size;
    struct ids ids = {0};
    size_t *count = mem_zalloc(size, sizeof *count);
    int rc = -1;
    if (!count)
        err_no_memory(err, "%zu ranks", size);
    else if (ids_parse(&ids, list, err) < 0 || ids.len != size)
        err_set(err,
                "--layers \"%s\": a number of layers for each of the %zu ranks is expected, as 10,12",
                list, size);
    else
        rc = 0;
    for (size_t r = 0; rc == 0 && r < size; r++)
        count[r] = ids.id[r];
    if (rc == 0)
        rc = shard_model_layers(gen->model, gen->ranks, count, err);
    ids_release(&ids);
    free(count);
    return rc;
}

static int shard(struct gen *gen, struct err *err)
{
    const char *layers = gen->options->layers;
    const bool deal = gen->parallelism == EXPERT_PARALLEL;
    if (deal || gen->parallelism == TENSOR_PARALLEL)
        return shard_model_tensors(gen->model, gen->ranks, deal, err);
    return layers ? shard_by_list(gen, layers, err)
                  : shard_model_layers(gen->model, gen->ranks, NULL, err);
}

int gen_shard_model(struct gen *gen, struct err *err)
{
    if (!gen_is_model_parallel(gen))
        return 0;
    if (check_options(gen->options, err) < 0 || shard(gen, err) < 0 ||
        (gen->options->mlock && shard_lock(gen->model, err) < 0))
        return -1;
    if (!gen_is_replica(gen)) {
        gen->leader = (struct leader){.ranks = gen->ranks};
        gen->leads = true;
    }
    return 0;
}

int gen_open_pipe(struct gen *gen, struct err *err)
{
    const size_t groups = gen->options->micro_batches;
    if (gen->strategy || !session_is_async(gen->session))
        return 0;
    if (step_pipe_open(&gen->pipe, gen->session, groups ? groups : (size_t)gen->ranks->size, err) < 0)
        return -1;
    gen->strategy = step_pipe_strategy(gen->pipe);
    return 0;
}

int gen_end_model_parallel(struct gen *gen, int rc, struct err *err)
{
    if (gen->leads && (rc == 0 || gen->over) && leader_end(&gen->leader, err) < 0)
        rc = -1;
    leader_close(&gen->leader);
    step_pipe_close(gen->pipe);
    return rc;
}

int gen_count_traffic(struct gen *gen, struct err *err)
{
    return gen->leads ? leader_stats(&gen->leader, session_wait_ms(gen->session), &gen->sent, err) : 0;
}

static double per_token(const struct gen *gen, size_t tokens)
{
    return tokens ? (double)gen->sent.sent_bytes / (double)tokens : 0;
}

void gen_print_traffic(const struct gen *gen, size_t tokens)
{
    const struct leader_stats *sent = &gen->sent;
    if (gen->leads)
        fprintf(stderr,
                "sent by ranks    = %10.0f bytes per token, %.2f MiB in all; each waited %.2f ms; the "
                "largest had %.2f MiB\n",
                per_token(gen, tokens), (double)sent->sent_bytes / 1048576, sent->wait_ms,
                (double)sent->peak_bytes / 1048576);
}

int gen_put_traffic(const struct gen *gen, size_t tokens, json_t *object, struct err *err)
{
    const struct leader_stats *sent = &gen->sent;
    const struct {
        const char *name;
        bool integer;
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
        json_t *value = !gen->leads         ? json_null()
                        : fields[i].integer ? json_integer((json_int_t)fields[i].value)
                                            : json_real(fields[i].value);
        rc = json_put(object, fields[i].name, value, err);
    }
    return rc;
}
