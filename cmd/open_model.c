/* Models that options name. */
#include "open_model.h"

#include "base/number.h"
#include "base/text_util.h"
#include "cli.h"
#include "model/convert/model_cache.h"
#include "model/draft_head.h"
#include "userdir.h"

/* ---- messages about a conversion ---- */

void cli_format_bytes(size_t bytes, char text[32])
{
    if (bytes < 1 << 20)
        snprintf(text, 32, "%zu bytes", bytes);
    else
        snprintf(text, 32, "%.1f MiB", (double)bytes / (1 << 20));
}

/* Reports data types of the source that take more space in the model, because no narrower type
 * holds their values exactly. A growth ratio below the threshold is only padding to whole tiles. */
static void report_growth(const struct program *program, const char *source,
                          const struct transcoded_type *held)
{
    const double padding = 0.02;
    for (size_t i = 0; i < SOURCE_OTHER; i++) {
        const struct transcoded_type *h = &held[i];
        const double before = (double)h->source_bytes, after = (double)h->stored_bytes;
        char source_bytes[32], stored_bytes[32];
        if (after <= before * (1 + padding))
            continue;
        cli_format_bytes(h->source_bytes, source_bytes);
        cli_format_bytes(h->stored_bytes, stored_bytes);
        cli_say(stderr,
                "%s: %s: %s grows from %.4g to %.4g bits per weight, stored as %s: %zu tensor%s, %s, "
                "%s before\n",
                program->name, source, block_types[i].name, 8 * before / (double)h->weights,
                8 * after / (double)h->weights, dtype_name(h->stored), h->tensors,
                h->tensors > 1 ? "s" : "", stored_bytes, source_bytes);
    }
}

void cli_report_conversion(const struct program *program, const char *source,
                           const struct conversion_report *report)
{
    const struct chat_report *chat = &report->chat;
    const struct convert_notes *notes = &report->notes;
    report_growth(program, source, report->held);
    if (*chat->refused.text)
        cli_say(stderr, "%s: %s: its template is not stored (%s)%s\n", program->name, source,
                chat->refused.text,
                chat->no_format ? ", and no chat format replaces it; --chat-template NAME chooses one"
                                : "; a chat format replaces it, which --info shows");
    const struct err *const texts[] = {
        &chat->others,     &chat->ignored,      &notes->left_out, &notes->head,     &notes->pooling,
        &notes->prompts,   &notes->requantized, &notes->kept,     &notes->replaced, &notes->dequantized,
        &notes->unrounded, &notes->draft,       &notes->chat};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        if (*texts[i]->text)
            cli_say(stderr, "%s: %s: %s\n", program->name, source, texts[i]->text);
}

/* ---- the cache ---- */

bool cli_cache_folder(char *path, size_t size, const char **why)
{
    *why = "it is converted on first use, but there is no folder for that: neither XDG_CACHE_HOME nor "
           "HOME is set";
    return userdir_path(USER_CACHE, "", path, size);
}

int cli_cache_size(size_t *bytes, struct err *err)
{
    const char *given = getenv("BMC_CACHE_SIZE");
    *bytes = MODEL_CACHE_BYTES;
    if (!given || !*given || parse_bytes(given, bytes))
        return 0;
    return err_set(err, "BMC_CACHE_SIZE: needs a size, as 64G or 512M; found \"%s\"",
                   excerpt_of(given, strlen(given)).text);
}

static void say_waits(void *arg, const char *source)
{
    const struct program *program = arg;
    cli_say(stderr, "%s: %s: another process converts it: waiting\n", program->name, source);
}

enum { CLI_MODEL_PATH = 16384 };

static int find_converted(const struct program *program, const char *source, char path[CLI_MODEL_PATH],
                          struct err *err)
{
    char folder[4096], models_dir[8192], bytes[32];
    struct conversion_report report = {0};
    struct cli_progress progress;
    struct model_cache cache = {.waits = say_waits, .arg = (void *)(uintptr_t)program};
    struct cached_model model; /* stays open, so that the file stays */
    if (cli_models_dir(models_dir, sizeof models_dir, err) < 0 ||
        cli_cache_size(&cache.max_bytes, err) < 0)
        return -1;
    if (cli_cache_folder(folder, sizeof folder, &cache.why))
        cache.folder = folder;
    cache.convert = (struct convert_options){.models_dir = models_dir,
                                             .chat_report = &report.chat,
                                             .notes = &report.notes,
                                             .transcoded = report.held,
                                             .progress = cli_progress,
                                             .arg = &progress};
    cli_progress_begin(&progress, "convert");
    cli_interrupt_ends(true);
    const int rc = model_cache_open(&cache, source, &model, err);
    cli_interrupt_ends(false);
    cli_progress_end(&progress);
    if (rc < 0)
        return -1;
    snprintf(path, CLI_MODEL_PATH, "%s", model.path);
    if (!model.converted)
        return 0;
    cli_report_conversion(program, source, &report);
    cli_format_bytes(model.converted, bytes);
    cli_say(stderr, "%s: %s: was converted for the next runs, too, to %s (%s)\n", program->name, source,
            path, bytes);
    return 0;
}

/* The file of a model, and what messages call it. */
struct found_model {
    char path[CLI_MODEL_PATH];
    const char *name;
};

static int find_model(struct found_model *found, const struct program *program, const char *option,
                      const char *named, const char *bundled, struct err *err)
{
    found->name = named ? named : found->path;
    if (!named)
        return cli_default_model(bundled, option, found->path, sizeof found->path, err);
    if (model_cache_converts(named))
        return find_converted(program, named, found->path, err);
    if ((size_t)snprintf(found->path, sizeof found->path, "%s", named) < sizeof found->path)
        return 0;
    return err_set(err, "%s: the name of the model is longer than %d bytes", option,
                   CLI_MODEL_PATH - 1);
}

int cli_open_model(const struct program *program, const char *option, const char *given,
                   const char *env, const char *bundled, struct model **model, struct err *err)
{
    const char *named = env ? getenv(env) : NULL;
    struct found_model found;
    named = given ? given : named && *named ? named : NULL;
    return find_model(&found, program, option, named, bundled, err) < 0
               ? -1
               : model_open_as(model, found.path, found.name, err);
}

int cli_open_draft(const struct program *program, const char *given, const char *bundled,
                   const struct model *target, struct model **draft, struct err *err)
{
    struct found_model found = {.path = "self"};
    const bool own = given && strcmp(given, "self") == 0;
    return !own && find_model(&found, program, "-d", given, bundled, err) < 0
               ? -1
               : draft_open(draft, found.path, found.name, target, err);
}
