/* Times crypto_generichash() with one thread on a file in the page cache, after sodium_init(),
 * which selects an implementation for the CPU.
 *
 *   hash FILE    prints seconds */
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "bench.h"

int main(int argc, char **argv)
{
    struct file_map map;
    struct err err;
    unsigned char hash[HASH_BYTES];
    if (argc != 2 || sodium_init() < 0)
        return 2;
    if (file_map(&map, argv[1], &err) < 0)
        die(&err);
    const double start = clock_ms();
    crypto_generichash(hash, sizeof hash, map.data, map.size, NULL, 0);
    printf("%.3f\n", (clock_ms() - start) / 1e3);
    file_unmap(&map);
    return 0;
}
