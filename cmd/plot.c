/* Checks and writes the chart of --plot FILE. */
#include "plot.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"

/* True for "-", FIFOs and devices, which need no suffix. */
static bool is_stream(const char *path)
{
    struct stat st;
    return strcmp(path, "-") == 0 ||
           (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode));
}

void plot_check_usage(const struct program *program, const char *path)
{
    static const char ending[] = ".svg";
    const size_t len = path ? strlen(path) : 0, end = sizeof ending - 1;
    if (path && !is_stream(path) && (len <= end || strcasecmp(path + len - end, ending) != 0))
        opt_usage_error(program, "--plot: pictures are SVG: give a name that ends in .svg");
}

int plot_save(const char *path, const struct svg_plot *plot, struct err *err)
{
    struct buf svg = {0};
    fflush(stdout);
    int rc = svg_draw(plot, &svg, err);
    if (rc == 0)
        rc = outfile_save(path, svg.data, svg.len, err);
    buf_release(&svg);
    return rc;
}
