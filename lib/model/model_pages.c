/* Weights in huge pages. */
#include "model/model_pages.h"

#include <string.h>

#include "base/file.h"
#include "base/io/map_huge.h"
#include "base/io/mapped.h"
#include "base/threads.h"

int model_use_huge_pages(const struct model *model, int threads, struct err *err)
{
    char enabled[64];
    const size_t n =
        file_head("/sys/kernel/mm/transparent_hugepage/enabled", enabled, sizeof enabled - 1);
    const size_t bytes = model->file.map.size,
                 free_bytes = file_proc_bytes("/proc/meminfo", "MemAvailable");
    enabled[n] = 0;
    if (!strchr(enabled, '[') || strstr(enabled, "[never]"))
        return err_set(err, "transparent huge pages are switched off on this system: write madvise to "
                            "/sys/kernel/mm/transparent_hugepage/enabled, or leave --hugepages out");
    if (free_bytes && free_bytes < bytes)
        return err_set(err,
                       "%s: a copy in huge pages takes %zu bytes, %zu are available: leave --hugepages "
                       "out",
                       model->path, bytes, free_bytes);
    threads_set(threads);
    mapped_remove(model->file.map.data); /* its name is for faults of truncated files */
    if (!map_huge_copy((void *)(uintptr_t)model->file.map.data, bytes))
        return err_set(err, "%s: not enough memory for a copy of %zu bytes: leave --hugepages out",
                       model->path, bytes);
    return 0;
}
