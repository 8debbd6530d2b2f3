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

/* Few programs, as most of the time that a driver takes for one may go into reading its own built-in functions. */
static const char *const programs[][3] = {{"rows.cl", "store.cl", "experts.cl"},
                                          {"weights.cl", "linear.cl", "tables.cl"},
                                          {"attend.cl", "merge.cl"}};

char *cl_source(const char *program)
{
    const char *part[5] = {text_of("cl_args.h"), text_of("common.cl"), "", "", ""};
    size_t bytes = 1;
    for (size_t i = 0; i < ARRAY_LEN(programs); i++)
        for (size_t f = 0; f < 3 && strcmp(programs[i][0], program) == 0; f++)
            part[2 + f] = programs[i][f] ? text_of(programs[i][f]) : "";
    for (size_t i = 0; i < ARRAY_LEN(part); i++)
        bytes += strlen(part[i]);
    char *text = mem_alloc(bytes, 1);
    if (text)
        snprintf(text, bytes, "%s%s%s%s%s", part[0], part[1], part[2], part[3], part[4]);
    return text;
}
