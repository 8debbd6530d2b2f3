/* The machine that a tuned profile belongs to. */
#include <unistd.h>

#include "base/cores.h"
#include "base/threads.h"
#include "tune/profile.h"

void machine_of(struct machine *m, const char *isa, enum vm_alloc alloc, int threads)
{
    *m = (struct machine){
        .cores = (size_t)threads_allowed(),
        .threads = (size_t)threads,
        .page_size = (size_t)sysconf(_SC_PAGESIZE),
    };
    cpu_model_name(m->cpu, sizeof m->cpu);
    snprintf(m->isa, sizeof m->isa, "%s", isa);
    snprintf(m->alloc, sizeof m->alloc, "%s", vm_alloc_name(alloc));
}

bool machine_same_settings(const struct machine *a, const struct machine *b)
{
    return a->threads == b->threads && strcmp(a->isa, b->isa) == 0 && strcmp(a->alloc, b->alloc) == 0;
}

int profile_check_machine(const struct profile *p, const struct machine *here, struct err *err)
{
    if (strcmp(p->machine.cpu, here->cpu) != 0)
        return err_set(err, "made on \"%s\", this is \"%s\"; run bmc-tune here", p->machine.cpu,
                       here->cpu);
    if (p->machine.cores != here->cores)
        return err_set(err, "made with %zu cores, here are %zu; run bmc-tune here", p->machine.cores,
                       here->cores);
    if (p->machine.page_size != here->page_size)
        return err_set(err, "made with pages of %zu bytes, here they have %zu; run bmc-tune here",
                       p->machine.page_size, here->page_size);
    return 0;
}
