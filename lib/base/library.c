/* Loads libraries with dlopen(), and finds their functions. */
#include "base/library.h"

#include <dlfcn.h>

int library_load(const struct library *library, const char *file, void *pointers, struct err *err)
{
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char *why = dlerror();
        return err_set(err, "%s cannot be loaded (%s); install %s", library->name, why ? why : file,
                       library->package);
    }
    for (size_t i = 0; i < library->n_functions; i++) {
        void *function = dlsym(handle, library->function[i].name);
        if (!function)
            return err_set(err, "%s (%s) has no %s: it is another build or version; install %s",
                           library->name, file, library->function[i].name, library->package);
        memcpy((char *)pointers + library->function[i].at, &function, sizeof function);
    }
    return 0;
}
