/* The user's configuration file: whatever it says, a program ends with a usage error, or its options have values that
 * their rows allow. exit() returns here. */
#include <setjmp.h>

#include "tests/fuzz/support/input.h"

static jmp_buf ended;
#define exit(status) longjmp(ended, (status) + 1)
#include "opt/opt_config.c"
#include "opt/opt_table.c"
#undef exit
#include "opt/opt_rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct settings {
    bool flag;
    const char *text, *model;
    struct opt_list list;
    size_t size, tokens;
    int64_t number;
    struct seed seed;
    double real;
    int type, kv_type;
};

#define AT(field) offsetof(struct settings, field)
static const struct opt opts[] = {
    FLAG("chat", NULL, flag, ""),
    TEXT("kv", NULL, "POLICY", text, ""),
    PATH("model", "m", "FILE", model, ""),
    LIST("stop", NULL, "TEXT", list, ""),
    SIZE("threads", "t", size, 1, 4096, ""),
    TOKENS("parallel", "np", tokens, 1, 1 << 20, ""),
    INT("predict", "n", number, -2, OPT_MANY, ""),
    SEED(seed, -1, ""),
    REAL("temp", "X", real, 0, 100, ""),
    CHOICE("format", "FORMAT", type, "table|md|csv", ""),
    CHOICE("cache-type", "TYPE", kv_type, CHOICES_CACHES, ""),
};
static const struct program program = {.name = "bmc-gen", .opts = opts, .n_opts = ARRAY_LEN(opts)};

static void check(const struct settings *s, const bool *given)
{
    if ((given[4] && (s->size < 1 || s->size > 4096)) ||
        (given[5] && (s->tokens < 1 || s->tokens > 1 << 20)) || (given[6] && s->number < -2) ||
        (given[8] && !(s->real >= 0 && s->real <= 100)) || s->type < 0 || s->type > 2 ||
        (given[1] && !s->text) || (given[3] && !s->list.n))
        abort();
}

static void forget(void)
{
    conf_release(&config.conf);
    free(config.of);
    buf_release(&config.entries);
    buf_release(&config.note);
    config.of = NULL;
    opt_add_to_usage_errors("");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct settings settings;
    char path[64], *argv[] = {(char[]){"bmc-gen"}, NULL};
    struct operands operands = {0};
    const int fd = input_file(data, size, path);
    if (fd < 0)
        return 0;
    setenv("BMC_CONFIG", path, 1);
    unsetenv("BMC_MODEL");
    settings = (struct settings){0};
    if (setjmp(ended) == 0) {
        opt_parse(&program, 1, argv, &settings, &operands);
        check(&settings, operands.given);
    }
    free(settings.list.text);
    forget();
    close(fd);
    return 0;
}
