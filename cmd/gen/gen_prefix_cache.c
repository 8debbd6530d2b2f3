/* The prefix cache on disk of bmc-gen and bmc-spec: --prefix-cache DIR[,size=SIZE]. */
#include <stdlib.h>
#include <string.h>

#include "decode/prefix_store.h"
#include "gen/gen.h"

static void warn(void *arg, const char *sentence)
{
    const struct gen *gen = arg;
    cli_say(stderr, "%s: --prefix-cache: %s\n", gen->program->name, sentence);
}

int gen_open_prefix_cache(struct gen *gen, struct err *err)
{
    static const char mark[] = ",size=";
    const char *given = gen->options->prefix_cache;
    struct err why;
    if (!given || gen->prefix_store)
        return 0;
    char *path = strdup(given);
    if (!path)
        return err_no_memory(err, "the name of a prefix cache");
    char *at = strstr(path, mark);
    for (char *next = at; next; next = strstr(next + 1, mark))
        at = next;
    const size_t size =
        at ? opt_bytes(gen->program, "--prefix-cache", at + strlen(mark)) : DEFAULT_STORE_BYTES;
    if (at)
        *at = 0;
    if (!*path)
        opt_usage_error(gen->program, "--prefix-cache: the name of a folder is expected");
    const struct kvblock_warn by = {warn, gen};
    if (prefix_store_open(&gen->prefix_store, path, size, BMC_RELEASE, by, &why) < 0)
        warn(gen, why.text);
    free(path);
    return 0;
}

void gen_bind_prefix_cache(struct gen *gen)
{
    struct err why;
    if (gen->prefix_store && prefix_store_bind(gen->prefix_store, gen->session, &why) < 0)
        warn(gen, why.text);
}
