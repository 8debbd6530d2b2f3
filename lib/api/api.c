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

/* BMC_RELEASE and BMC_FLAGS come from the Makefile. */
const char *bmc_version(void) { return BMC_RELEASE; }

const char *bmc_build(void) { return COMPILER ", " BMC_FLAGS; }

int api_status(int rc, const struct err *err, enum bmc_status otherwise, struct bmc_error *error)
{
    static const enum bmc_status status[] = {[ERR_INVALID] = BMC_INVALID,
                                             [ERR_NO_MEMORY] = BMC_NO_MEMORY,
                                             [ERR_FULL] = BMC_FULL,
                                             [ERR_INTERRUPTED] = BMC_CANCELLED,
                                             [ERR_BUSY] = BMC_BUSY};
    if (rc == 0)
        return BMC_OK;
    if (error)
        api_name_members(err->text, error->text, sizeof error->text);
    return err->code == ERR_FAILED ? otherwise : status[err->code];
}

bool api_progress(const struct bmc_context *c, size_t done, size_t total, struct err *err)
{
    if (!c->progress || !c->progress(c->arg, done, total))
        return true;
    err_code(err, ERR_INTERRUPTED, "cancelled by the option `progress`");
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
        return err_code(err, ERR_INVALID,
                        "the member `size` of struct %s is %zu: set it to sizeof(struct %s)", name,
                        given, name);
    for (size_t i = size; i < given; i++)
        if (((const char *)from)[i])
            return err_code(err, ERR_INVALID,
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
