/* Writes files of a folder that stands for /sys. */
#ifndef BMC_SYSFS_TEXT_H
#define BMC_SYSFS_TEXT_H

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/unit/check.h"

/* Writes `text` to the file `name` in the folder `sysfs`, whose folders are made. */
static inline void write_sysfs(const char *sysfs, const char *name, const char *text)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", sysfs, name);
    for (char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = 0;
        mkdir(path, 0777);
        *at = '/';
    }
    FILE *file = fopen(path, "w");
    check(file && fputs(text, file) >= 0, "cannot write %s", path);
    if (file)
        fclose(file);
}

#endif
