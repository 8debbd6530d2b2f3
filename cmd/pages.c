/* Options --hugepages and --numa. */
#include "pages.h"

#include "cli.h"
#include "model/model_pages.h"

int pages_use(const char *program, const struct model *model, const struct pages_options *options,
              struct err *err)
{
    static bool noted; /* a draft model comes second */
    if (options->numa) {
        struct numa numa;
        numa_read(&numa, "/sys");
        if (numa.n > 1)
            return model_use_numa(model, &numa, options->threads, err);
        if (!noted)
            cli_say(
                stderr,
                "%s: note: this process may use cores of one NUMA node only: --numa changes nothing\n",
                program);
        noted = true;
    }
    return options->hugepages ? model_use_huge_pages(model, options->threads, err) : 0;
}
