/* The user's folder for bmc. */
#include "userdir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool userdir_path(const char *name, char *path, size_t size)
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    int len = -1;
    if (config && *config == '/') /* XDG: relative paths are ignored */
        len = snprintf(path, size, "%s/bmc/%s", config, name);
    else if (home && *home == '/')
        len = snprintf(path, size, "%s/.config/bmc/%s", home, name);
    return len > 0 && (size_t)len < size;
}

void userdir_make(const char *path)
{
    char folder[8192];
    const int len = snprintf(folder, sizeof folder, "%s", path);
    if (len < 0 || (size_t)len >= sizeof folder)
        return;
    for (char *slash = folder; (slash = strchr(slash + 1, '/'));) {
        *slash = 0;
        (void)!mkdir(folder, 0700);
        *slash = '/';
    }
}
