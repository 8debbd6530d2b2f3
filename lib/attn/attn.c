/* The table of attention backends. */
#include "attn/attn.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

extern const struct attn_backend attn_fused, attn_blas;

const struct attn_backend *const attn_backends[] = {&attn_fused, &attn_blas, NULL};

const struct attn_backend *attn_find(const char *name, struct err *err)
{
    char names[128] = "";
    if (!name)
        return attn_backends[0];
    for (size_t i = 0; attn_backends[i]; i++) {
        if (strcmp(attn_backends[i]->name, name) == 0)
            return attn_backends[i];
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", attn_backends[i]->name);
    }
    err_set(err, "attention backend \"%s\" is unknown; there are: %s", name, names);
    return NULL;
}

int attn_open(struct attn **out, const struct attn_backend *backend, size_t heads, size_t kv_heads,
              size_t head_dim, size_t max_rows, size_t max_step_rows, size_t max_queries,
              struct err *err)
{
    *out = mem_zalloc(1, backend->state_size());
    if (!*out)
        return err_set(err, "out of memory for attention");
    (*out)->backend = backend;
    if (backend->open(*out, heads, kv_heads, head_dim, max_rows, max_step_rows, max_queries, err) < 0) {
        attn_close(*out);
        *out = NULL;
        return -1;
    }
    return 0;
}

void attn_close(struct attn *attn)
{
    if (!attn)
        return;
    attn->backend->close(attn);
    free(attn);
}
