/* A user's folders for bmc, by the XDG base directory specification: bmc/ in $XDG_CONFIG_HOME, else ~/.config, and so
 * on. */
#pragma once

#include "base/base.h"

enum userdir { USER_CONFIG, USER_CACHE, USER_STATE };

/* The path of file `name` in a folder, of the folder itself if `name` is ""; false: there is no home folder, or the
 * path is too long. */
bool userdir_path(enum userdir folder, const char *name, char *path, size_t size);
