/* The user's folder for bmc: $XDG_CONFIG_HOME/bmc, else ~/.config/bmc. */
#ifndef BMC_USERDIR_H
#define BMC_USERDIR_H

#include "base/base.h"

/* The path of a file in it; false when there is no such place, or the path is too long. */
bool userdir_path(const char *name, char *path, size_t size);

/* Makes the folders that a path lies in where they are missing, for the user alone, as the standard of XDG has it. That
 * it could not be done is told when the file is opened. */
void userdir_make(const char *path);

#endif
