/* Mappings of large files, and copies of them in transparent huge pages. */
#include "base/io/map_huge.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/threads.h"
#include "base/vm.h"

enum { HUGE_PAGE = 2 << 20 };

void *map_huge_file(int fd, size_t bytes)
{
    char *at = bytes < HUGE_PAGE ? NULL : vm_reserve(VM_THP, bytes);
    void *data = mmap(at, bytes, PROT_READ, MAP_SHARED | (at ? MAP_FIXED : 0), fd, 0);
    if (data != MAP_FAILED)
        return data;
    const int why = errno;
    vm_release(at, bytes);
    errno = why;
    return NULL;
}

struct copy_job {
    char *to;
    const char *from;
    size_t bytes;
};

static void copy_part(void *arg, size_t i)
{
    const struct copy_job *job = arg;
    const size_t at = i * HUGE_PAGE;
    memcpy(job->to + at, job->from + at, size_min(HUGE_PAGE, job->bytes - at));
}

bool map_huge_copy(void *mapped, size_t bytes)
{
    struct copy_job job = {vm_get(VM_THP, bytes), mapped, bytes};
    if (!job.to)
        return false;
    parallel_for(div_up(bytes, HUGE_PAGE), bytes, copy_part, &job);
    mprotect(job.to, bytes, PROT_READ);
    if (mremap(job.to, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, mapped) != MAP_FAILED)
        return true;
    vm_free(VM_THP, job.to, bytes);
    return false;
}
