/* Settings of requests: the state that their parsing needs, a part of every context. */
#ifndef BMC_API_SETTINGS_H
#define BMC_API_SETTINGS_H

#include "api/api.h"
#include "serve/serve.h"

struct api_settings {
    struct constraint_cache *constraints;
    struct dry_breakers breakers;
    struct chat_prompts chat;
    struct chat_notes notes;
    char *chat_template, *models_dir; /* copies of the options */
    struct serve serve;
    foreign_members ignored, told; /* that requests had, and that the log has */
};

/* Opens the settings of a context whose session is open. */
int api_settings_open(struct api_settings **settings, const struct bmc_context *context,
                      const struct bmc_options *options, struct err *err) MUST_USE;
void api_settings_close(struct api_settings *settings); /* NULL is accepted */

/* Writes to the log which further members of requests have no effect. */
void api_settings_log(const struct bmc_context *context);

#endif
