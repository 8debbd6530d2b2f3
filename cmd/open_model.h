/* The file of a model that an option names: the default model, and models of GGUF files and folders, which are
 * converted on first use (model/convert/model_cache.h). */
#pragma once

#include "model/convert/convert.h"
#include "opt/opt.h"

struct model;

/* Opens the model that an option names: `given` by the option, as "-m"; NULL: named by the variable `env` (NULL: by
 * none), else the bundled model `bundled`. A GGUF file or folder is converted unless the cache has its model; that it
 * was is said in one line, and the model stays in the cache until the process ends. */
int cli_open_model(const struct program *program, const char *option, const char *given,
                   const char *env, const char *bundled, struct model **model,
                   struct err *err) MUST_USE;

/* The same for the draft model or draft head of -d, which may be "self". */
int cli_open_draft(const struct program *program, const char *given, const char *bundled,
                   const struct model *target, struct model **draft, struct err *err) MUST_USE;

/* The cache's folder; false: there is no home folder, which *why says. */
bool cli_cache_folder(char *path, size_t size, const char **why);

/* The cache's size in bytes: BMC_CACHE_SIZE, by default 64 GiB. */
int cli_cache_size(size_t *bytes, struct err *err) MUST_USE;

/* What a user should know of a conversion that succeeded; its members are those of struct convert_options. */
struct conversion_report {
    struct chat_report chat;
    struct convert_notes notes;
    struct transcoded_type held[SOURCE_OTHER];
};
void cli_report_conversion(const struct program *program, const char *source,
                           const struct conversion_report *report);

/* "512 bytes", or "1.5 MiB". */
void cli_format_bytes(size_t bytes, char text[32]);
