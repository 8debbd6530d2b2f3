/* Completion scripts from an option table. */
#ifndef BMC_OPT_COMPLETE_H
#define BMC_OPT_COMPLETE_H

#include "opt/opt.h"

void opt_complete_bash(const struct program *program, FILE *out);
void opt_complete_zsh(const struct program *program, FILE *out);
void opt_complete_fish(const struct program *program, FILE *out);

#endif
