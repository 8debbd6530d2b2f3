/* Settings of a conversation: /set. */
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "base/text_util.h"
#include "chat/repl.h"
#include "opt/opt.h"

#define FIELD(field) offsetof(struct gen_options, field)

/* Names of sampling parameters in requests, beside those of options. */
#define ROW(kind, field, name, alias, ...) {name, alias, FIELD(sampling.field)},
static const struct {
    const char *name, *alias;
    size_t at;
} members[] = {SAMPLING_PARAMS(ROW)};
#undef ROW

/* True for an option that can be set during a conversation: those of sampling, and the length of answers. */
static bool is_setting(const struct opt *opt)
{
    static const size_t more[] = {FIELD(mirostat), FIELD(samplers), FIELD(seed), FIELD(request.n)};
    bool found = opt->kind != OPT_HEADING && opt->at >= FIELD(sampling) &&
                 opt->at < FIELD(sampling) + sizeof(struct sampler_options);
    for (size_t i = 0; i < ARRAY_LEN(more); i++)
        found = found || (opt->kind != OPT_HEADING && opt->at == more[i]);
    return found;
}

const char *repl_setting_name(const struct repl *repl, size_t n)
{
    const struct program *program = repl->gen->program;
    for (size_t i = 0; i < program->n_opts; i++)
        if (is_setting(&program->opts[i]) && n-- == 0)
            return program->opts[i].name;
    return NULL;
}

/* Finds a setting by the name of its option, with or without dashes, or of its member of requests. */
static const struct opt *find(const struct repl *repl, const char *name, struct err *err)
{
    const struct program *program = repl->gen->program;
    const char *word = name + strspn(name, "-");
    size_t at = SIZE_MAX;
    char known[400] = "";
    for (size_t i = 0; i < ARRAY_LEN(members); i++)
        if (strcmp(word, members[i].name) == 0 ||
            (members[i].alias && strcmp(word, members[i].alias) == 0))
            at = members[i].at == FIELD(sampling.mirostat) ? FIELD(mirostat)
                 : members[i].at == FIELD(sampling.order)  ? FIELD(samplers)
                                                           : members[i].at;
    for (size_t i = 0; i < program->n_opts; i++) {
        const struct opt *opt = &program->opts[i];
        if (!is_setting(opt))
            continue;
        if (opt->at == at || strcmp(opt->name, word) == 0 ||
            (opt->letters && strcmp(opt->letters, word) == 0))
            return opt;
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", opt->name);
    }
    err_set(err, "/set knows no \"%s\"; there are %s", excerpt_of(name, strlen(name)).text, known);
    return NULL;
}

/* The value in use. */
static void value_text(const struct repl *repl, const struct opt *opt, char *text, size_t size)
{
    const struct gen *gen = repl->gen;
    const struct sampler_options *s = &gen->sampling;
    double value = 0;
    if (opt->at == FIELD(samplers)) {
        sampler_order_text(&s->order, text, size);
        snprintf(text + strlen(text), size - strlen(text), "%s", s->order.n ? "" : "the default order");
        return;
    }
    if (opt->at == FIELD(seed)) {
        snprintf(text, size, "%llu", (unsigned long long)gen->seed);
        return;
    }
    if (opt->at == FIELD(request.n))
        value = gen->serve.options.request.n == GENERATE_NO_LIMIT
                    ? -1
                    : (double)gen->serve.options.request.n;
    else if (opt->at == FIELD(mirostat))
        value = (double)s->mirostat;
    for (size_t i = 0; i < ARRAY_LEN(members); i++)
        if (members[i].at == opt->at)
            value = sampling_get(s, i);
    number_text(value, text);
}

/* Reads a value into options of which no other sampling parameter is given. */
static int read_value(const struct opt *opt, const char *text, struct gen_options *o, struct err *err)
{
    if (opt->at == FIELD(samplers))
        return sampler_order_parse(text, &o->sampling.order, err) < 0 ? err_prefix(err, "--samplers")
                                                                      : 0;
    if (opt->at == FIELD(mirostat)) {
        if (strcmp(text, "0") != 0 && strcmp(text, "2") != 0)
            return err_set(err, "--mirostat: \"%s\" is none of 0, 2",
                           excerpt_of(text, strlen(text)).text);
        o->sampling.mirostat = text[0] == '2' ? 2 : 0;
        return 0;
    }
    if (opt_store_number(opt, text, (char *)o + opt->at))
        return 0;
    char sentence[256];
    opt_number_sentence(opt, text, sentence, sizeof sentence);
    return err_set(err, "--%s: %s", opt->name, sentence);
}

static int apply(struct gen *gen, const struct opt *opt, const struct gen_options *o, struct err *err)
{
    if (opt->at == FIELD(request.n))
        gen->serve.options.request.n = o->request.n;
    if (opt->at == FIELD(seed)) {
        gen->seed = o->seed.value;
        if (o->seed.draw && seed_draw(&gen->seed, err) < 0)
            return -1;
        gen->serve.options.request.seed = gen->seed;
    }
    sampling_override(&gen->sampling, &o->sampling);
    if (dry_is_on(&gen->sampling)) {
        if (dry_breakers_find(&gen->breakers, err) < 0)
            return -1;
        gen->sampling.dry_breaker = gen->breakers.token;
    }
    gen->serve.options.sampling = gen->sampling;
    return 0;
}

int repl_set(struct repl *repl, const char *arg, struct err *err)
{
    char name[64], value[160];
    const size_t len = strcspn(arg, " \t=");
    const char *text = arg + len + strspn(arg + len, " \t=");
    snprintf(name, sizeof name, "%.*s", (int)size_min(len, sizeof name - 1), arg);
    if (!*name) {
        for (size_t i = 0; i < repl->gen->program->n_opts; i++) {
            const struct opt *opt = &repl->gen->program->opts[i];
            if (!is_setting(opt))
                continue;
            value_text(repl, opt, value, sizeof value);
            repl_say("%-20s %s", opt->name, value);
        }
        return 0;
    }
    const struct opt *opt = find(repl, name, err);
    if (!opt)
        return -1;
    if (*text) {
        struct gen_options o = *repl->gen->options;
        o.sampling = sampling_not_given();
        if (read_value(opt, text, &o, err) < 0 || apply(repl->gen, opt, &o, err) < 0)
            return -1;
    }
    value_text(repl, opt, value, sizeof value);
    repl_say("%s is %s%s", opt->name, value, *text ? " from the next answer on" : "");
    return 0;
}
