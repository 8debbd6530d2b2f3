/* --experts: experts that are read from the model file, and their statistics. */
#include <stdio.h>

#include "gen/gen.h"
#include "model/experts/expert_store.h"

int gen_open_experts(struct gen *gen, struct err *err)
{
    struct expert_store_options options;
    if (!gen->options->experts)
        return 0;
    if (expert_store_parse(&options, gen->options->experts, err) < 0)
        return -1;
    return expert_store_open(gen->model, &options, err);
}

/* Statistics of the store; zeros without one. */
static struct expert_stats stats_of(const struct gen *gen)
{
    return gen->model->store ? *expert_store_stats(gen->model->store) : (struct expert_stats){0};
}

static double share(uint64_t part, uint64_t all) { return all ? (double)part / (double)all : 0; }

void gen_print_experts(const struct gen *gen)
{
    const struct expert_stats s = stats_of(gen);
    if (gen->options->experts && !s.ram)
        fprintf(stderr, "experts          = all fit in memory\n");
    if (!s.ram)
        return;
    fprintf(stderr,
            "experts          = %.2f of %.2f MiB in memory: %.1f %% of %llu uses hit, %.2f MiB read, "
            "%.2f ms waited; %llu prefetched, %.1f %% of them needed\n",
            (double)s.ram / 1048576, (double)s.total / 1048576, 100 * share(s.hits, s.uses),
            (unsigned long long)s.uses, (double)s.read_bytes / 1048576, s.wait_ms,
            (unsigned long long)s.prefetched, 100 * share(s.prefetch_hits, s.prefetched));
}

int gen_put_experts(const struct gen *gen, json_t *object, struct err *err)
{
    const struct expert_stats s = stats_of(gen);
    const struct {
        const char *name;
        json_t *value;
    } fields[] = {
        {"experts_memory_bytes", json_integer((json_int_t)s.ram)},
        {"experts_total_bytes", json_integer((json_int_t)s.total)},
        {"experts_uses", json_integer((json_int_t)s.uses)},
        {"experts_hits", json_integer((json_int_t)s.hits)},
        {"experts_needed_bytes", json_integer((json_int_t)s.needed_bytes)},
        {"experts_read_bytes", json_integer((json_int_t)s.read_bytes)},
        {"experts_prefetched", json_integer((json_int_t)s.prefetched)},
        {"experts_prefetch_hits", json_integer((json_int_t)s.prefetch_hits)},
        {"experts_wait_ms", json_real(s.wait_ms)},
    };
    int rc = 0;
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        if (json_put(object, fields[i].name, fields[i].value, err) < 0)
            rc = -1;
    return rc;
}
