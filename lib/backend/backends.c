/* The backends that there are: a new one is a folder beside lib/cpu, and a name here. */
#include "backend/backend.h"

extern const struct backend cpu_backend, opencl_backend;

const struct backend *const backends[] = {&cpu_backend, &opencl_backend, NULL};

const struct backend *backend_find(const char *name, const char *cache, struct err *err)
{
    for (size_t i = 0; backends[i]; i++)
        if (!name || strcmp(backends[i]->name, name) == 0)
            return !backends[i]->start || backends[i]->start(cache, err) == 0 ? backends[i] : NULL;
    err_set(err, "backend \"%s\" is unknown; there are: cpu, opencl", name);
    return NULL;
}
