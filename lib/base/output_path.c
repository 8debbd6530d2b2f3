/* Resolves the path of an output. */
#include "base/output_path.h"

#include <limits.h>
#include <unistd.h>

#include "base/number.h"

enum { MAX_LINKS = 40 };

/* Paths that stand for open descriptors. */
static const struct {
    const char *name;
    int fd; /* -1: the descriptor's number follows the name */
} open_names[] = {{"-", STDOUT_FILENO},
                  {"/dev/stdout", STDOUT_FILENO},
                  {"/dev/stderr", STDERR_FILENO},
                  {"/dev/fd/", -1},
                  {"/proc/self/fd/", -1}};

static int open_descriptor(const char *path)
{
    size_t number;
    for (size_t i = 0; i < ARRAY_LEN(open_names); i++) {
        const size_t len = strlen(open_names[i].name);
        if (open_names[i].fd >= 0 && strcmp(path, open_names[i].name) == 0)
            return open_names[i].fd;
        if (open_names[i].fd < 0 && strncmp(path, open_names[i].name, len) == 0)
            return parse_size(path + len, &number) && number <= INT_MAX ? (int)number : -1;
    }
    return -1;
}

/* Length of the folder part of a path, up to and including its last slash; 0 if there is none. */
static size_t folder_len(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

static int stat_folder(const char *path, struct stat *st)
{
    char folder[sizeof(((struct output_path *)0)->path)];
    const size_t len = folder_len(path);
    memcpy(folder, path, len);
    folder[len] = 0;
    return stat(len ? folder : ".", st);
}

/* Replaces `path` by the target of its symbolic link until it is no link. Links among its folders
 * stay: rename() follows them. */
static int follow_links(char *path, size_t size, struct err *err)
{
    char target[sizeof(((struct output_path *)0)->path)];
    ssize_t len;
    for (int links = 0; (len = readlink(path, target, sizeof target)) > 0; links++) {
        const size_t folder = *target == '/' ? 0 : folder_len(path);
        if (links == MAX_LINKS)
            return err_set(err, "%s: is one of links that lead to each other", path);
        if (folder + (size_t)len >= size)
            return err_set(err, "%s: the link points to a name of more than %zu bytes", path, size - 1);
        memcpy(path + folder, target, (size_t)len);
        path[folder + (size_t)len] = 0;
    }
    return 0;
}

static enum output_path_kind kind_of(mode_t mode)
{
    return S_ISREG(mode) ? OUTPUT_FILE : S_ISDIR(mode) ? OUTPUT_FOLDER : OUTPUT_STREAM;
}

/* Resolves the symbolic links of an existing output. Fails for a /proc link to a deleted file,
 * which leads to no path. */
static int find_existing(struct output_path *output, struct err *err)
{
    struct stat st;
    output->kind = kind_of(output->st.st_mode);
    if (output->kind == OUTPUT_STREAM)
        return 0;
    if (follow_links(output->path, sizeof output->path, err) < 0)
        return -1;
    if (stat(output->path, &st) < 0 || st.st_dev != output->st.st_dev || st.st_ino != output->st.st_ino)
        return err_set(err, "%s: cannot be replaced: it is a deleted file", output->path);
    return 0;
}

/* Follows a dangling link to the path where the file will be created; fails on links that the
 * system refused to follow (`why`: errno), such as a cycle or another user's link in /tmp
 * (protected_symlinks, proc_sys_fs(5)). */
static int find_target(struct output_path *output, int why, struct err *err)
{
    struct stat link;
    if (why == ENOENT)
        return follow_links(output->path, sizeof output->path, err);
    if (lstat(output->path, &link) < 0 || !S_ISLNK(link.st_mode))
        return 0;
    errno = why;
    return err_errno(err, "%s: cannot follow the link", output->path);
}

int output_path_find(struct output_path *output, const char *path, struct err *err)
{
    *output = (struct output_path){.fd = open_descriptor(path)};
    if (!*path)
        return err_set(err, "the name of an output is empty");
    if (strlen(path) >= sizeof output->path)
        return err_set(err, "output name is longer than %zu bytes", sizeof output->path - 1);
    strcpy(output->path, path);
    if (output->fd >= 0) {
        output->kind = OUTPUT_OPEN;
        return fstat(output->fd, &output->st) < 0 ? err_errno(err, "%s", path) : 0;
    }
    if (stat(path, &output->st) == 0)
        return find_existing(output, err);
    output->kind = OUTPUT_NEW; /* errors not about links are reported when the file is opened */
    if (find_target(output, errno, err) < 0)
        return -1;
    if (stat_folder(output->path, &output->st) < 0)
        output->st = (struct stat){0};
    return 0;
}

bool output_path_same(const struct output_path *a, const struct output_path *b)
{
    const bool new = a->kind == OUTPUT_NEW;
    return new == (b->kind == OUTPUT_NEW) && a->st.st_dev == b->st.st_dev &&
           a->st.st_ino == b->st.st_ino && a->st.st_ino &&
           (!new || strcmp(a->path + folder_len(a->path), b->path + folder_len(b->path)) == 0);
}
