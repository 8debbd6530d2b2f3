/* Reads beginnings of files, and the small files of /proc and /sys. */
#include "base/file_head.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

size_t file_head(const char *path, void *bytes, size_t size)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* does not block on a FIFO */
    struct stat st;
    size_t len = 0;
    if (fd < 0)
        return 0;
    ssize_t n = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    while (n > 0 && len < size) {
        n = pread(fd, (char *)bytes + len, size - len, (off_t)len);
        len += n > 0 ? (size_t)n : 0;
    }
    close(fd);
    return len;
}

size_t file_proc_bytes(const char *path, const char *key)
{
    char text[8192];
    const size_t len = strlen(key);
    size_t kib = 0;
    text[file_head(path, text, sizeof text - 1)] = 0;
    for (const char *line = text; *line; line += line[0] == '\n') {
        if (strncmp(line, key, len) == 0 && sscanf(line + len, ": %zu kB", &kib) == 1)
            break;
        line += strcspn(line, "\n");
    }
    return kib << 10;
}
