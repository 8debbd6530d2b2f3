/* What processor this is. */
#include "base/cpu.h"

#include <stdio.h>
#include <string.h>

void cpu_model_name(char *name, size_t size)
{
    char line[256];
    FILE *info = fopen("/proc/cpuinfo", "re");
    snprintf(name, size, "unknown");
    while (info && fgets(line, sizeof line, info)) {
        const char *value = strncmp(line, "model name", 10) == 0 ? strchr(line, ':') : NULL;
        if (!value)
            continue;
        value += 1 + strspn(value + 1, " \t");
        snprintf(name, size, "%.*s", (int)strcspn(value, "\n"), value);
        break;
    }
    if (info)
        fclose(info);
}
