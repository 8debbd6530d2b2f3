/* Where an output goes. */
#include "base/place.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/number.h"

enum { MAX_LINKS = 40 };

/* Names of what is open already. */
static const struct {
    const char *name;
    int fd; /* -1: its number follows the name */
} open_names[] = {{"-", STDOUT_FILENO},
                  {"/dev/stdout", STDOUT_FILENO},
                  {"/dev/stderr", STDERR_FILENO},
                  {"/dev/fd/", -1},
                  {"/proc/self/fd/", -1}};

static int open_already(const char *path)
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

/* The folder that a name lies in. */
static int stat_folder(const char *path, struct stat *st)
{
    char folder[sizeof(((struct place *)0)->path)];
    const char *slash = strrchr(path, '/');
    const size_t len = slash ? (size_t)(slash - path) : 0;
    memcpy(folder, path, len);
    folder[len] = 0;
    return stat(!slash ? "." : len ? folder : "/", st);
}

/* The rule that Linux has for links in /tmp, on every system and in every such folder. */
static bool is_trap(const char *path, const struct stat *link)
{
    struct stat folder;
    if (link->st_uid == geteuid() || stat_folder(path, &folder) < 0)
        return false;
    return (folder.st_mode & S_ISVTX) && (folder.st_mode & S_IWOTH) && folder.st_uid != link->st_uid;
}

/* A name is read part by part. What has been read, `done`, holds no links; the target of one is read like the name. */
struct walk {
    char done[sizeof(((struct place *)0)->path)];
    char rest[sizeof(((struct place *)0)->path)];
};

/* The next part, with the slashes before it; those at the end are a part, too. The length of `done` until then. */
static size_t take_part(struct walk *walk)
{
    const size_t before = strlen(walk->done), slashes = strspn(walk->rest, "/"),
                 len = slashes + strcspn(walk->rest + slashes, "/");
    memcpy(walk->done + before, walk->rest, len);
    walk->done[before + len] = 0;
    memmove(walk->rest, walk->rest + len, strlen(walk->rest + len) + 1);
    return before;
}

/* The link at the end of `done`, which was `before` bytes long, gives way to what it points to. */
static int enter_link(struct walk *walk, size_t before, struct err *err)
{
    char target[sizeof walk->rest];
    const ssize_t len = readlink(walk->done, target, sizeof target - 1);
    if (len <= 0)
        return err_errno(err, "%s: cannot follow the link", walk->done);
    const size_t rest = strlen(walk->rest), slashes = strspn(walk->done + before, "/"),
                 from = *target == '/' ? 0 : before + slashes;
    if (from + (size_t)len + rest >= sizeof walk->rest)
        return err_set(err, "%s: the link points to a name of more than %zu bytes", walk->done,
                       sizeof walk->rest - 1);
    memmove(walk->rest + len, walk->rest, rest + 1);
    memcpy(walk->rest, target, (size_t)len);
    walk->done[from] = 0;
    return 0;
}

/* What /proc has for an open pipe says "pipe:[4711]", which is no name: the system alone can follow it. */
static bool is_magic(const struct walk *walk, size_t before)
{
    struct walk further = *walk;
    struct stat st;
    struct err ignored;
    if (stat(walk->done, &st) < 0)
        return false;
    further.rest[0] = 0;
    if (enter_link(&further, before, &ignored) < 0)
        return false;
    strcpy(further.done + strlen(further.done), further.rest);
    return lstat(further.done, &st) < 0;
}

static int follow(struct place *place, struct err *err)
{
    struct walk walk = {.done = ""};
    struct stat link;
    int links = 0;
    strcpy(walk.rest, place->path);
    while (*walk.rest) {
        const size_t before = take_part(&walk);
        if (lstat(walk.done, &link) < 0 || !S_ISLNK(link.st_mode))
            continue;
        if (links++ == MAX_LINKS)
            return err_set(err, "%s: links that lead to each other", place->path);
        if (is_trap(walk.done, &link))
            return err_set(err,
                           "%s: is a link of another user in a folder where everybody may write, "
                           "so it is not followed",
                           walk.done);
        if (!is_magic(&walk, before) && enter_link(&walk, before, err) < 0)
            return -1;
    }
    strcpy(place->path, walk.done);
    return 0;
}

static enum place_kind kind_of(mode_t mode)
{
    return S_ISREG(mode) ? PLACE_FILE : S_ISDIR(mode) ? PLACE_FOLDER : PLACE_PIPE;
}

int place_find(struct place *place, const char *path, struct err *err)
{
    *place = (struct place){.fd = open_already(path)};
    if (!*path)
        return err_set(err, "the name of an output is empty");
    if (strlen(path) >= sizeof place->path)
        return err_set(err, "output name is longer than %zu bytes", sizeof place->path - 1);
    strcpy(place->path, path);
    if (place->fd >= 0) {
        place->kind = PLACE_OPEN;
        return fstat(place->fd, &place->st) < 0 ? err_errno(err, "%s", path) : 0;
    }
    if (follow(place, err) < 0)
        return -1;
    if (stat(place->path, &place->st) == 0) {
        place->kind = kind_of(place->st.st_mode);
    } else {
        place->kind = PLACE_NEW; /* what else is wrong with it, its opening will tell */
        if (stat_folder(place->path, &place->st) < 0)
            place->st = (struct stat){0};
    }
    return 0;
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool place_same(const struct place *a, const struct place *b)
{
    return (a->kind == PLACE_NEW) == (b->kind == PLACE_NEW) && a->st.st_dev == b->st.st_dev &&
           a->st.st_ino == b->st.st_ino && a->st.st_ino &&
           (a->kind != PLACE_NEW || strcmp(last_part(a->path), last_part(b->path)) == 0);
}
