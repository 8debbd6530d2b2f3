/* The CPU's model name. */
#include "base/cpu.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"

void cpu_model_name(char *name, size_t size)
{
    static const char key[] = "model name";
    char text[4096]; /* beginning of /proc/cpuinfo: the first processor */
    text[file_head("/proc/cpuinfo", text, sizeof text - 1)] = 0;
    const char *line = strstr(text, key), *value = line ? strchr(line, ':') : NULL;
    if (value)
        value += 1 + strspn(value + 1, " \t");
    else
        value = "unknown";
    snprintf(name, size, "%.*s", (int)strcspn(value, "\n"), value);
}
