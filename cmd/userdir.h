/* The user's folder for bmc: $XDG_CONFIG_HOME/bmc, else ~/.config/bmc. */
#ifndef BMC_USERDIR_H
#define BMC_USERDIR_H

#include "base/base.h"

/* The path of file `name` in the folder; false: no home folder, or the path is too long. */
bool userdir_path(const char *name, char *path, size_t size);

/* Creates missing parent folders of a path, accessible to the user only (XDG). Failures show when
 * the file is opened. */
void userdir_make(const char *path);

#endif
