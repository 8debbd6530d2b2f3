/* Mappings of large files, and copies of them in transparent huge pages. */
#include "base/io/map_huge.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/threads.h"
#include "base/vm.h"

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

/* The file is mapped a second time while the copy takes its place. (A copy made elsewhere could not be moved there:
 * mremap() refuses memory with several NUMA policies.) */
bool map_huge_copy(void *mapped, size_t bytes, map_huge_place *place, void *arg)
{
    void *file = mremap(mapped, 0, bytes, MREMAP_MAYMOVE);
    if (file == MAP_FAILED)
        return false;
    void *copy =
        mmap(mapped, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (copy == MAP_FAILED)
        return mremap(file, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, mapped), false;
    madvise(copy, bytes, MADV_HUGEPAGE);
    if (place)
        place(arg, copy);
    struct copy_job job = {copy, file, bytes};
    parallel_for(div_up(bytes, HUGE_PAGE), bytes, copy_part, &job);
    mprotect(copy, bytes, PROT_READ);
    munmap(file, bytes);
    return true;
}
