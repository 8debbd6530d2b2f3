/* Sampling parameters by name. */
#include "format/sampling.h"

#include "base/mem.h"
#include "base/text_util.h"

_Static_assert(sizeof(size_t) == sizeof(double), "fields of numbers have one size");

#define ROW(kind, field, name, alias, min, max, initial, gguf, generation, ...)                        \
    [SAMPLING_##field] = {SAMPLING_##kind,                                                             \
                          name,                                                                        \
                          alias,                                                                       \
                          min,                                                                         \
                          max,                                                                         \
                          initial,                                                                     \
                          gguf,                                                                        \
                          generation,                                                                  \
                          offsetof(struct sampler_options, field)},
const struct sampling_param sampling_params[SAMPLING_COUNT_OF_PARAMS] = {SAMPLING_PARAMS(ROW)};

#define NOT_GIVEN (SIZE_MAX - 1) /* a size_t that no option sets */

static bool is_real(const struct sampling_param *param)
{
    return param->kind == SAMPLING_REAL || param->kind == SAMPLING_STATE;
}

static void *field_of(struct sampler_options *options, size_t param)
{
    return (char *)options + sampling_params[param].at;
}

static size_t size_of(size_t param)
{
    return sampling_params[param].kind == SAMPLING_ORDER ? sizeof(struct sampler_order)
                                                         : sizeof(double);
}

size_t sampling_find(const char *name)
{
    size_t i = 0;
    while (i < SAMPLING_COUNT_OF_PARAMS && strcmp(sampling_params[i].name, name) != 0)
        i++;
    return i;
}

double sampling_get(const struct sampler_options *options, size_t param)
{
    const void *field = (const char *)options + sampling_params[param].at;
    if (is_real(&sampling_params[param]))
        return *(const double *)field;
    const size_t value = *(const size_t *)field;
    return value == SIZE_MAX ? -1 : (double)value;
}

bool sampling_set(struct sampler_options *options, size_t param, double value)
{
    const struct sampling_param *p = &sampling_params[param];
    void *field = field_of(options, param);
    if (!(value >= p->min && value <= p->max) || (!is_real(p) && value != floor(value)) ||
        (p->kind == SAMPLING_VERSION && value == 1))
        return false;
    if (is_real(p))
        *(double *)field = value;
    else
        *(size_t *)field = value < 0 ? SIZE_MAX : (size_t)value;
    return true;
}

struct sampler_options sampling_defaults(void)
{
    struct sampler_options options = {0};
    for (size_t i = 0; i < SAMPLING_COUNT_OF_PARAMS; i++)
        if (sampling_params[i].kind != SAMPLING_ORDER)
            (void)sampling_set(&options, i, sampling_params[i].initial);
    return options;
}

struct sampler_options sampling_not_given(void)
{
    struct sampler_options options = {0};
    for (size_t i = 0; i < SAMPLING_COUNT_OF_PARAMS; i++)
        if (is_real(&sampling_params[i]))
            *(double *)field_of(&options, i) = NAN;
        else if (sampling_params[i].kind != SAMPLING_ORDER)
            *(size_t *)field_of(&options, i) = NOT_GIVEN;
    return options;
}

bool sampling_is_given(const struct sampler_options *options, size_t param)
{
    const void *field = (const char *)options + sampling_params[param].at;
    if (sampling_params[param].kind == SAMPLING_ORDER)
        return options->order.n > 0;
    return is_real(&sampling_params[param]) ? !isnan(*(const double *)field)
                                            : *(const size_t *)field != NOT_GIVEN;
}

void sampling_override(struct sampler_options *options, const struct sampler_options *given)
{
    for (size_t i = 0; i < SAMPLING_COUNT_OF_PARAMS; i++)
        if (sampling_is_given(given, i))
            memcpy(field_of(options, i), (const char *)given + sampling_params[i].at, size_of(i));
    if (sampling_is_given(given, SAMPLING_mirostat) || sampling_is_given(given, SAMPLING_mirostat_tau))
        options->mirostat_mu = 0;
}

static json_t *value_json(const struct sampler_options *options, size_t param)
{
    char order[128];
    const double number =
        sampling_params[param].kind == SAMPLING_ORDER ? 0 : sampling_get(options, param);
    if (is_real(&sampling_params[param]))
        return json_real(number);
    if (sampling_params[param].kind != SAMPLING_ORDER)
        return number < 1e18 ? json_integer((json_int_t)number) : json_real(number);
    sampler_order_text(&options->order, order, sizeof order);
    return json_string(order);
}

json_t *sampling_json(const struct sampler_options *options, struct err *err)
{
    json_t *object = json_object();
    int rc = object ? 0 : err_no_memory(err, "sampling parameters");
    for (size_t i = 0; i < SAMPLING_COUNT_OF_PARAMS && rc == 0; i++)
        rc = json_put(object, sampling_params[i].name, value_json(options, i), err);
    return json_or_null(object, rc, err);
}

#define BREAKERS "dry_sequence_breakers"

json_t *sampling_pack(const struct sampler_options *options, struct err *err)
{
    json_t *object = sampling_json(options, err), *list = object ? json_array() : NULL;
    int rc = list ? 0 : object ? err_no_memory(err, "sequence breakers") : -1;
    for (size_t i = 0; options->dry_text && i < options->n_dry_texts && rc == 0; i++)
        rc = json_push(list, json_text(options->dry_text[i], strlen(options->dry_text[i])), err);
    if (rc == 0 && options->dry_text)
        rc = json_put(object, BREAKERS, json_incref(list), err);
    json_decref(list);
    return json_or_null(object, rc, err);
}

/* Copies a list of strings to one block: pointers, then texts. */
static int read_breakers(struct sampler_options *options, const json_t *list, struct err *err)
{
    const size_t n = json_array_size(list);
    size_t bytes = (n + 1) * sizeof(char *);
    if (!json_is_array(list))
        return err_set(err, "has an invalid value of the sampling parameter \"" BREAKERS "\"");
    for (size_t i = 0; i < n; i++)
        bytes += json_string_length(json_array_get(list, i)) + 1;
    char **text = mem_alloc(1, bytes);
    if (!text)
        return err_no_memory(err, "sequence breakers");
    char *at = (char *)(text + n + 1);
    for (size_t i = 0; i < n; i++) {
        const char *from = json_string_value(json_array_get(list, i));
        text[i] = strcpy(at, from ? from : "");
        at += strlen(at) + 1;
    }
    options->dry_text = text;
    options->n_dry_texts = n;
    return 0;
}

int sampling_read(struct sampler_options *options, const json_t *object, struct err *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        if (strcmp(key, BREAKERS) == 0) {
            if (read_breakers(options, value, err) < 0)
                return -1;
            continue;
        }
        const size_t param = sampling_find(key);
        const char *text = json_string_value(value);
        if (param == SAMPLING_COUNT_OF_PARAMS)
            return err_set(err, "has the sampling parameter \"%s\", which this version does not know",
                           excerpt_of(key, strlen(key)).text);
        const bool list = sampling_params[param].kind == SAMPLING_ORDER;
        if (list && text && (sampler_order_parse(text, &options->order, err) == 0 || !*text))
            continue;
        if (list || !json_is_number(value) || !sampling_set(options, param, json_number_value(value)))
            return err_set(err, "has an invalid value of the sampling parameter \"%s\"", key);
    }
    return 0;
}

#define STEP(NAME, function, text, usual) {text, usual},
static const struct sampler_step_row {
    const char *name;
    bool usual; /* part of the default order */
} steps[SAMPLER_STEPS] = {SAMPLER_LIST(STEP)};

void sampler_order_text(const struct sampler_order *order, char *text, size_t size)
{
    size_t len = 0;
    *text = 0;
    for (size_t i = 0; i < order->n && len < size; i++)
        len +=
            (size_t)snprintf(text + len, size - len, "%s%s", i ? ";" : "", steps[order->step[i]].name);
}

/* The step whose name is text[0..len); SAMPLER_STEPS: none. */
static size_t step_named(const char *text, size_t len)
{
    size_t step = 0;
    while (step < SAMPLER_STEPS &&
           (strlen(steps[step].name) != len || memcmp(steps[step].name, text, len) != 0))
        step++;
    return step;
}

static int refuse_step(const char *text, size_t len, struct err *err)
{
    char names[128] = "";
    for (size_t i = 0, used = 0; i < SAMPLER_STEPS && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s",
                                 !i                      ? ""
                                 : i + 1 < SAMPLER_STEPS ? ", "
                                                         : " and ",
                                 steps[i].name);
    return err_set(err, "\"%s\" is none of the samplers %s", excerpt_of(text, len).text, names);
}

int sampler_order_parse(const char *text, struct sampler_order *order, struct err *err)
{
    *order = (struct sampler_order){0};
    for (const char *at = text; *at;) {
        const size_t len = strcspn(at, ";,"), step = step_named(at, len);
        if (step == SAMPLER_STEPS)
            return refuse_step(at, len, err);
        for (size_t i = 0; i < order->n; i++)
            if (order->step[i] == step)
                return err_set(err, "the sampler %s is listed twice", steps[step].name);
        order->step[order->n++] = (uint8_t)step;
        at += len + (at[len] && at[len + 1]);
        if (*at == ';' || *at == ',')
            return err_set(err, "the list of samplers has an empty entry");
    }
    return order->n ? 0 : err_set(err, "the list of samplers is empty");
}

struct sampler_order sampler_order_of(const struct sampler_options *options)
{
    static const struct sampler_order mirostat = {{SAMPLER_DRY, SAMPLER_TEMPERATURE, SAMPLER_MIROSTAT},
                                                  3};
    struct sampler_order usual = {0};
    if (options->order.n || options->mirostat)
        return options->order.n ? options->order : mirostat;
    for (size_t i = 0; i < SAMPLER_STEPS; i++)
        if (steps[i].usual)
            usual.step[usual.n++] = (uint8_t)i;
    return usual;
}
