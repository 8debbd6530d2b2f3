/* Measures the rate of a disk for reads such as those of experts: at random places of a file, past the page
 * cache, several at once.
 *
 *   experts_disk FILE BYTES DEPTH SECONDS
 *
 * BYTES is the size of a read, DEPTH the number of reads in flight. Prints bytes per second. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/async_file.h"
#include "base/mem.h"
#include "base/vm.h"
#include "bench.h"

int main(int argc, char **argv)
{
    struct async_file *file;
    struct async_failure failure;
    struct err err;
    uint64_t state = (uint64_t)(clock_ms() * 1e6) | 1;
    size_t done = 0;
    if (argc != 5) {
        err_set(&err, "usage: experts_disk FILE BYTES DEPTH SECONDS");
        die(&err);
    }
    const size_t bytes = round_up(strtoull(argv[2], NULL, 10), ASYNC_BLOCK),
                 depth = strtoull(argv[3], NULL, 10);
    const double seconds = strtod(argv[4], NULL);
    const int fd = open(argv[1], O_RDONLY | O_DIRECT | O_CLOEXEC);
    const off_t size = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
    if (size < (off_t)bytes || !depth) {
        err_errno(&err, "%s: cannot read %zu bytes there", argv[1], bytes);
        die(&err);
    }
    if (async_file_open(&file, fd, (size_t)size, &err) < 0)
        die(&err);
    struct async_ticket *ticket = mem_zalloc(depth, sizeof *ticket);
    char *memory = vm_get(VM_THP, depth * bytes); /* as slots of experts: a read has few segments */
    memset(memory, 0, depth * bytes);
    const double start = clock_ms();
    for (size_t i = 0; clock_ms() - start < seconds * 1e3; i = (i + 1) % depth) {
        done += ticket[i].bytes;
        if (ticket[i].bytes && !async_file_wait(file, &ticket[i], &failure)) {
            err_set(&err, "%s: a read failed", argv[1]);
            die(&err);
        }
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        const size_t blocks = ((size_t)size - bytes) / ASYNC_BLOCK;
        async_file_read(file, &ticket[i], memory + i * bytes, state % (blocks + 1) * ASYNC_BLOCK,
                        bytes);
    }
    const double ms = clock_ms() - start;
    printf("%.0f\n", (double)done / ms * 1e3);
    async_file_close(file);
    free(ticket);
    vm_free(VM_THP, memory, depth * bytes);
    return 0;
}
