/* Choices of options from the library's tables, so that parsing, help and completions include a new
 * policy or kernel set automatically. */
#include "opt/opt_choices.h"

#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "attn/attn.h"
#include "base/cores.h"
#include "base/text_util.h"
#include "quant/cache_types.h"
#include "cli.h"
#include "kernel/gemm.h"
#include "kv/kv.h"
#include "model/convert/tensor_types.h"

static const char *nth_isa(size_t i) { return kernel_sets[i] ? kernel_sets[i]->isa : NULL; }
static const char *nth_precision(size_t i) { return precision_names[i]; }
static const char *nth_attn(size_t i) { return attn_backends[i] ? attn_backends[i]->name : NULL; }

static const char *nth_cache(size_t i) { return cache_types[i].name; }

static const char *nth_type(size_t i) { return dtype_names[i]; }

static const struct {
    const char *marker;
    const char *(*nth)(size_t i);
} lists[] = {
    {CHOICES_KV, kv_policy_name}, {CHOICES_ISA, nth_isa},    {CHOICES_PRECISION, nth_precision},
    {CHOICES_ATTN, nth_attn},     {CHOICES_TYPES, nth_type}, {CHOICES_IMPORTS, model_types_name},
    {CHOICES_CACHES, nth_cache},
};

const char *opt_choices(const struct opt *opt)
{
    static char text[ARRAY_LEN(lists)][512];
    if (!opt->choices || opt->choices[0] != '@')
        return opt->choices;
    for (size_t l = 0; l < ARRAY_LEN(lists); l++) {
        if (strcmp(lists[l].marker, opt->choices) != 0)
            continue;
        size_t used = 0;
        for (size_t i = 0; lists[l].nth(i) && used < sizeof text[l]; i++)
            used += (size_t)snprintf(text[l] + used, sizeof text[l] - used, "%s%s", i ? "|" : "",
                                     lists[l].nth(i));
        return text[l];
    }
    return NULL;
}

void opt_help_text(const struct opt *opt, char *text, size_t size)
{
    const char *hole = strstr(opt->help, "{}"), *choices = opt_choices(opt);
    char values[512];
    if (!hole || !choices) {
        snprintf(text, size, "%s", opt->help);
        return;
    }
    text_join_choices(choices, ", ", " or ", values, sizeof values);
    snprintf(text, size, "%.*s%s%s", (int)(hole - opt->help), opt->help, values, hole + 2);
}

size_t opt_choice_index(const char *choices, const char *text)
{
    char word[32] = ""; /* no choice is longer, or has capitals */
    const size_t n = strlen(text);
    for (size_t i = 0; n < sizeof word && i < n; i++)
        word[i] = (char)tolower((unsigned char)text[i]);
    return text_choice(choices, word);
}

/* The first characters of a name for comparisons, without what spellings of types and other names
 * differ in: case, '_', '-', '.', "MOSTLY_" of llama.cpp, and "float" for f. */
static void squeeze(const char *name, size_t len, char word[32])
{
    size_t used = 0;
    for (size_t i = 0; i < len && used < 31; i++) {
        if (strncasecmp(name + i, "mostly", size_min(6, len - i)) == 0 && len - i > 6)
            i += 6;
        if (!strchr("_-.", name[i]))
            word[used++] = (char)tolower((unsigned char)name[i]);
        if (strncasecmp(name + i, "float", size_min(5, len - i)) == 0 && len - i > 5)
            i += 4;
    }
    word[used] = 0;
}

bool opt_near_choice(const char *choices, const char *text, char *near, size_t size)
{
    size_t least = SIZE_MAX;
    char word[32], name[32];
    squeeze(text, strlen(text), word);
    for (const char *at = choices; *at;) {
        const size_t len = strcspn(at, "|");
        squeeze(at, len, name);
        const size_t distance = edit_distance(word, name),
                     most = size_min(strlen(word), strlen(name)) / 3;
        if (distance < least && strlen(word) > 1 && (distance <= most || distance == 1)) {
            least = distance;
            snprintf(near, size, "%.*s", (int)len, at);
        }
        at += len + (at[len] == '|');
    }
    return least != SIZE_MAX;
}

const char *opt_find_type(const struct program *program, const char *text)
{
    static char near[32];
    const struct opt *opt = opt_find_exact(program, "type", strlen("type"), true);
    return opt_near_choice(opt_choices(opt), text, near, sizeof near) ? near : NULL;
}

/* Exits with the error; if `value` of the option is none of its choices, the closest is suggested. */
__attribute__((noreturn)) static void refuse_name(const struct program *program, const char *option,
                                                  const char *value, const struct err *err)
{
    const struct opt *opt = opt_find_exact(program, option, strlen(option), true);
    const char *choices = opt ? opt_choices(opt) : NULL;
    char name[32], near[32];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(value, ":"), value);
    if (choices && text_choice(choices, name) == SIZE_MAX &&
        opt_near_choice(choices, name, near, sizeof near))
        opt_usage_error(program, "%s; did you mean %s?", err->text, near);
    opt_usage_error(program, "%s", err->text);
}

void opt_names_check(const struct program *program, const char *kv, const char *attn, const char *isa,
                     const char *precision)
{
    struct kv_spec spec;
    enum precision parsed;
    struct err err;
    if (kv && kv_spec_parse(&spec, kv, &err) < 0)
        refuse_name(program, "kv", kv, &err);
    if (attn && !attn_find(attn, &err))
        refuse_name(program, "attn", attn, &err);
    if (isa && !*isa)
        opt_usage_error(program, "--isa: the name is empty");
    if (isa && !kernels_select(isa, &err))
        refuse_name(program, "isa", isa, &err);
    if (precision && !*precision)
        opt_usage_error(program, "--precision: the name is empty");
    if (precision_parse(&parsed, precision, *kernel_sets, false, &err) < 0)
        refuse_name(program, "precision", precision, &err);
}

void opt_type_check(const struct program *program, int type, const char *shape)
{
    if (type >= 0 && !shape)
        opt_usage_error(program, "--type is that of random weights: it goes with --shape");
}

void opt_cores_check(const struct program *program, const char *mask, int cores)
{
    struct err err;
    if (mask && cpu_check_mask(mask, &err) < 0)
        opt_usage_error(program, "%s", err.text);
    if (mask && cores)
        opt_usage_error(program, "--cpu-mask and --cores exclude each other");
}

int opt_cores_use(const char *mask, int cores, struct err *err)
{
    if (mask)
        return cpu_use_mask(mask, err);
    return cores ? cpu_use_fastest("/sys", err) : 0;
}

/* Names that shells can take as words without expanding anything. */
static int is_shape(const struct dirent *entry)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const size_t len = strlen(entry->d_name), end = strlen(".shape");
    return len > end && strcmp(entry->d_name + len - end, ".shape") == 0 &&
           entry->d_name[strspn(entry->d_name, plain)] == 0 && !strchr(".-", entry->d_name[0]);
}

void opt_print_shapes(FILE *out)
{
    char models[4096], shapes[4200];
    struct dirent **entry = NULL;
    struct err err;
    if (cli_models_dir(models, sizeof models, &err) < 0)
        return;
    snprintf(shapes, sizeof shapes, "%s/shapes", models);
    const int n = scandir(shapes, &entry, is_shape, alphasort);
    for (int i = 0; i < n; i++) {
        fprintf(out, "%.*s\n", (int)(strlen(entry[i]->d_name) - strlen(".shape")), entry[i]->d_name);
        free(entry[i]);
    }
    free(entry);
}
