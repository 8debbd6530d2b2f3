/* The kernels' source: the Makefile writes it to cl_source.inc, as {"file", "text"} for each file. */
#include "opencl/cl_source.h"

#include "base/mem.h"

static const struct source_file {
    const char *name, *text;
} files[] = {
#include <cl_source.inc>
};

static const char *text_of(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        if (strcmp(files[i].name, name) == 0)
            return files[i].text;
    return "";
}

char *cl_source(const char *file)
{
    const char *const part[] = {text_of("cl_args.h"), text_of("common.cl"), text_of("weights.cl"),
                                text_of(file)};
    size_t bytes = 1;
    for (size_t i = 0; i < ARRAY_LEN(part); i++)
        bytes += strlen(part[i]);
    char *text = mem_alloc(bytes, 1);
    if (text)
        snprintf(text, bytes, "%s%s%s%s", part[0], part[1], part[2], part[3]);
    return text;
}
