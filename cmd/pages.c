/* Options --hugepages and --numa. */
#include "pages.h"

#include "cli.h"

int pages_use(const char *program, const struct model *model, const struct pages_options *options,
              struct err *err)
{
    static bool noted; /* a draft model comes second */
    bool one_node;
    const int rc = model_use_pages(model, options, &one_node, err);
    if (one_node && !noted)
        cli_say(stderr,
                "%s: note: this process may use cores of one NUMA node only: --numa changes nothing\n",
                program);
    noted = noted || one_node;
    return rc;
}
