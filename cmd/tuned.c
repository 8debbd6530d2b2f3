/* Finds the tuned profile. */
#include "tuned.h"

#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "userdir.h"

bool tuned_path(const char *option, char *path, size_t size)
{
    const int len = option ? snprintf(path, size, "%s", option) : -1;
    return option ? len > 0 && (size_t)len < size : userdir_path("profile", path, size);
}

int tuned_open(struct tuned *tuned, const char *program, const char *option, const char *isa,
               enum vm_alloc alloc, int threads, struct err *err)
{
    char path[8192];
    bool exists;
    *tuned = (struct tuned){.found = false};
    if ((option && strcmp(option, "none") == 0) || !tuned_path(option, path, sizeof path))
        return 0;
    if (tuned_read(tuned, path, isa, alloc, threads, &exists, err) < 0) {
        tuned_close(tuned);
        if (option)
            return err_prefix(err, "--profile");
        cli_say(stderr, "%s: ignoring the tuned profile: %s\n", program, err->text);
        return 0;
    }
    return option && !exists ? err_set(err, "--profile: %s does not exist; bmc-tune makes it", path)
                             : 0;
}
