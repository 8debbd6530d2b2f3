/* Shared by the tests of the public library. */
#ifndef BMC_API_CHECK_H
#define BMC_API_CHECK_H

#include <string.h>

#include "bmc.h"
#include "tests/unit/check.h"

#define OPTIONS(...) (&(struct bmc_options){.size = sizeof(struct bmc_options), __VA_ARGS__})
#define INPUT(...)   ((struct bmc_input){.size = sizeof(struct bmc_input), __VA_ARGS__})
#define REQUEST(...) ((struct bmc_request){.size = sizeof(struct bmc_request), __VA_ARGS__})
#define RESULT       ((struct bmc_result){.size = sizeof(struct bmc_result)})
#define STATS        ((struct bmc_stats){.size = sizeof(struct bmc_stats)})

static struct bmc_error error;
static size_t vocab;

static inline struct bmc_context *open_context(const struct bmc_model *model,
                                               const struct bmc_options *options)
{
    struct bmc_context *context;
    if (!check(bmc_context_open(&context, model, options, &error) == 0, "context: %s", error.text))
        exit(1);
    return context;
}

static inline void refused(int status, int code, const char *sentence)
{
    check(status == code && strstr(error.text, sentence), "%d, not %d (%s): %s", status, code, sentence,
          error.text);
}

#endif
