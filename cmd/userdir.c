/* A user's folders for bmc. */
#include "userdir.h"

bool userdir_path(enum userdir folder, const char *name, char *path, size_t size)
{
    static const struct {
        const char *variable, *in_home;
    } of[] = {
        [USER_CONFIG] = {"XDG_CONFIG_HOME", ".config"},
        [USER_CACHE] = {"XDG_CACHE_HOME", ".cache"},
        [USER_STATE] = {"XDG_STATE_HOME", ".local/state"},
    };
    const char *base = getenv(of[folder].variable), *home = getenv("HOME");
    const char *slash = *name ? "/" : "";
    int len = -1;
    if (base && *base == '/') /* XDG: relative paths are ignored */
        len = snprintf(path, size, "%s/bmc%s%s", base, slash, name);
    else if (home && *home == '/')
        len = snprintf(path, size, "%s/%s/bmc%s%s", home, of[folder].in_home, slash, name);
    return len > 0 && (size_t)len < size;
}
