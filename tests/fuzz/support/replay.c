/* Replaces the fuzzer: runs a target once on every file given. Regression test for findings,
 * with any compiler. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) < 0)
        return perror(path), -1;
    const size_t size = (size_t)ftell(file);
    uint8_t *data = malloc(size); /* exact size: sanitizers detect overreads */
    rewind(file);
    const int rc = size == 0 || (data && fread(data, 1, size, file) == size) ? 0 : -1;
    if (rc == 0)
        (void)LLVMFuzzerTestOneInput(data, size);
    else
        perror(path);
    free(data);
    fclose(file);
    return rc;
}

int main(int argc, char **argv)
{
    const int out = dup(STDOUT_FILENO);
    if (out < 0 || !freopen("/dev/null", "w", stdout)) /* what targets print */
        return 1;
    for (int i = 1; i < argc; i++)
        if (replay(argv[i]) < 0)
            return 1;
    dprintf(out, "%d inputs\n", argc - 1);
    return 0;
}
