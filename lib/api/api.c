/* Errors and versioned structures of the public API. */
#include "api/api.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#ifdef __clang__
#define COMPILER __VERSION__
#else
#define COMPILER "gcc " __VERSION__
#endif

#define CANCELLED "cancelled by the option `progress`"

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

int api_failed(struct err *err, int code)
{
    api_name_members(err);
    if (strcmp(err->text, CANCELLED) == 0)
        return BMC_CANCELLED;
    return strstr(err->text, "out of memory") ? BMC_NO_MEMORY : code;
}

bool api_progress(const struct bmc_context *c, size_t done, size_t total, struct err *err)
{
    if (!c->progress || !c->progress(c->arg, done, total))
        return true;
    err_set(err, CANCELLED);
    return false;
}

void api_log(const struct bmc_context *c, enum bmc_log_level level, const char *format, ...)
{
    char sentence[1024];
    va_list args;
    if (!c->log)
        return;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    c->log(c->arg, level, sentence);
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

void api_write(void *to, size_t size, const void *from, size_t from_size)
{
    memset(to, 0, size);
    memcpy(to, from, size_min(size, from_size));
    memcpy(to, &size, sizeof size);
}
