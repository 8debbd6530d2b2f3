/* Errors and versioned structures of the public API. */
#include "api/api.h"

#include <string.h>

#ifdef __clang__
#define COMPILER __VERSION__
#else
#define COMPILER "gcc " __VERSION__
#endif

_Static_assert(sizeof(struct bmc_error) == sizeof(struct err),
               "bmc_error and err are the same structure");

/* BMC_RELEASE and BMC_FLAGS come from the Makefile. */
const char *bmc_version(void) { return BMC_RELEASE; }

const char *bmc_build(void) { return COMPILER ", " BMC_FLAGS; }

struct err *api_err(struct bmc_error *error)
{
    static _Thread_local struct err unread;
    return error ? (struct err *)error : &unread;
}

int api_failed(const struct err *err, int code)
{
    return strstr(err->text, "out of memory") ? BMC_NO_MEMORY : code;
}

int api_read(void *to, size_t size, const void *from, size_t least, const char *name, struct err *err)
{
    size_t given;
    memcpy(&given, from, sizeof given);
    if (given < least)
        return err_set(err, "the member `size` of struct %s is %zu: set it to sizeof(struct %s)", name,
                       given, name);
    for (size_t i = size; i < given; i++)
        if (((const char *)from)[i])
            return err_set(err,
                           "struct %s has members that libbmc %s does not know: the program was "
                           "built for a later version",
                           name, BMC_RELEASE);
    memset(to, 0, size);
    memcpy(to, from, size_min(given, size));
    return 0;
}
