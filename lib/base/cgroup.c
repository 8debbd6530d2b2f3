/* Limits of control groups. */
#include "base/cgroup.h"

#include "base/file_head.h"
#include "base/mem.h"
#include "base/text_util.h"

enum { PATH_SIZE = 4096, LIST_SIZE = 1 << 18 };

struct walk {
    const char *root, *controller;
    char *groups, *mounts; /* /proc/self/cgroup and /proc/self/mountinfo */
    size_t (*limit_at)(const char *folder, bool v2);
    size_t least;
};

/* Cuts the next field off *at, which ends at `end`. */
static char *cut_field(char **at, char end)
{
    char *field = *at, *stop = strchr(field, end);
    *at = stop ? stop + 1 : field + strlen(field);
    if (stop)
        *stop = 0;
    return field;
}

/* Replaces the octal escapes of mountinfo, as \040 for a blank. */
static void unescape(char *text)
{
    char *out = text;
    for (const char *at = text; *at; out++) {
        unsigned byte;
        const bool escape = sscanf(at, "\\%3o", &byte) == 1 && strspn(at + 1, "01234567") >= 3;
        *out = escape ? (char)byte : *at;
        at += escape ? 4 : 1;
    }
    *out = 0;
}

/* `path` below `folder`; NULL: it is not. */
static const char *below(const char *path, const char *folder)
{
    const size_t len = strcmp(folder, "/") == 0 ? 0 : strlen(folder);
    return strncmp(path, folder, len) == 0 && (path[len] == '/' || !path[len]) ? path + len : NULL;
}

/* Finds the folder where the group `path` of a hierarchy is mounted, and the length of the mount point in it. A
 * container may see another root of the hierarchy than its path begins with: its limits are at the mount point. */
static bool find_folder(const struct walk *w, const char *path, bool v2, char folder[PATH_SIZE],
                        size_t *mount_len)
{
    AUTO(free_auto) char *copy = strdup(w->mounts);
    bool found = false, exact = false;
    for (char *at = copy; at && *at && !exact;) {
        char *line = cut_field(&at, '\n'), *dash = strstr(line, " - ");
        if (!dash)
            continue;
        char *type = dash + 3, *ids[3], *rest = line;
        *dash = 0;
        for (size_t i = 0; i < ARRAY_LEN(ids); i++)
            ids[i] = cut_field(&rest, ' ');
        char *mount_root = cut_field(&rest, ' '), *mount = cut_field(&rest, ' ');
        const char *kind = cut_field(&type, ' ');
        cut_field(&type, ' '); /* the source */
        if (strcmp(kind, v2 ? "cgroup2" : "cgroup") != 0 ||
            (!v2 && !text_lists(type, w->controller, strlen(w->controller))))
            continue;
        unescape(mount_root);
        unescape(mount);
        const char *inner = strstr(path, "/..") ? NULL : below(path, mount_root);
        if (!inner && found)
            continue;
        const int len = snprintf(folder, PATH_SIZE, "%s%s", w->root, mount);
        *mount_len = (size_t)len;
        found = len > 0 && len + strlen(inner ? inner : "") < PATH_SIZE;
        exact = found && inner;
        if (exact && strcmp(inner, "/") != 0)
            strcpy(folder + len, inner);
    }
    return found;
}

/* Takes the least limit of a group and those above it. */
static void take_least_above(struct walk *w, const char *path, bool v2)
{
    char folder[PATH_SIZE];
    size_t mount_len;
    if (!find_folder(w, path, v2, folder, &mount_len))
        return;
    for (;;) {
        w->least = size_min(w->least, w->limit_at(folder, v2));
        char *slash = strrchr(folder, '/');
        if (!slash || slash < folder + mount_len)
            return;
        *slash = 0;
    }
}

static size_t least_limit(const char *root, const char *controller,
                          size_t (*limit_at)(const char *, bool))
{
    struct walk w = {root, controller, malloc(LIST_SIZE), malloc(LIST_SIZE), limit_at, SIZE_MAX};
    char path[PATH_SIZE];
    if (w.groups && w.mounts) {
        snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
        w.groups[file_head(path, w.groups, LIST_SIZE - 1)] = 0;
        snprintf(path, sizeof path, "%s/proc/self/mountinfo", root);
        w.mounts[file_head(path, w.mounts, LIST_SIZE - 1)] = 0;
        for (char *at = w.groups; *at;) {
            char *line = cut_field(&at, '\n');
            cut_field(&line, ':'); /* the hierarchy's number */
            const char *controllers = cut_field(&line, ':');
            if (!*controllers || text_lists(controllers, controller, strlen(controller)))
                take_least_above(&w, line, !*controllers);
        }
    }
    free(w.groups);
    free(w.mounts);
    return w.least;
}

/* Reads a file of a group; false: there is none. */
static bool read_text(const char *folder, const char *name, char *text, size_t size)
{
    char path[PATH_SIZE + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    const size_t len = file_head(path, text, size - 1);
    text[len] = 0;
    return len > 0;
}

/* Reads a number; false: the file has none, as "max". */
static bool read_number(const char *folder, const char *name, unsigned long long *number)
{
    char text[64], end;
    return read_text(folder, name, text, sizeof text) && strspn(text, "0123456789") > 0 &&
           sscanf(text, "%llu%c", number, &end) == 2 && end == '\n';
}

static size_t cpus_at(const char *folder, bool v2)
{
    unsigned long long quota, period;
    char text[64];
    const bool limited = v2 ? read_text(folder, "cpu.max", text, sizeof text) && text[0] != '-' &&
                                  sscanf(text, "%llu %llu", &quota, &period) == 2
                            : read_number(folder, "cpu.cfs_quota_us", &quota) &&
                                  read_number(folder, "cpu.cfs_period_us", &period);
    if (!limited)
        return SIZE_MAX;
    return quota && period ? (size_t)(quota / period + (quota % period > 0)) : SIZE_MAX;
}

size_t cgroup_cpus(const char *root) { return least_limit(root, "cpu", cpus_at); }

/* The number after a key at the beginning of a line; 0: there is none. */
static unsigned long long value_of(const char *text, const char *key)
{
    const size_t len = strlen(key);
    for (const char *line = text; *line; line += line[0] == '\n') {
        if (strncmp(line, key, len) == 0 && line[len] == ' ')
            return strtoull(line + len, NULL, 10);
        line += strcspn(line, "\n");
    }
    return 0;
}

/* Bytes in use, without cached pages of files, which the kernel reclaims. Version 1 counts those of the groups below
 * under keys of their own. */
static unsigned long long used_at(const char *folder, bool v2)
{
    unsigned long long used, cached = 0;
    char text[8192];
    if (!read_number(folder, v2 ? "memory.current" : "memory.usage_in_bytes", &used))
        return 0;
    if (read_text(folder, "memory.stat", text, sizeof text)) {
        cached = value_of(text, "total_inactive_file") + value_of(text, "total_active_file");
        if (!cached)
            cached = value_of(text, "inactive_file") + value_of(text, "active_file");
    }
    return cached < used ? used - cached : 0;
}

/* Above memory.high the kernel stalls a group, so that it is a limit, too. */
static size_t memory_at(const char *folder, bool v2)
{
    static const char *const names[2][2] = {{"memory.limit_in_bytes"}, {"memory.max", "memory.high"}};
    const unsigned long long none = 1ULL << 62; /* version 1 has a number beyond it */
    unsigned long long limit = none, number;
    for (size_t i = 0; i < 2 && names[v2][i]; i++)
        if (read_number(folder, names[v2][i], &number) && number < limit)
            limit = number;
    if (limit == none)
        return SIZE_MAX;
    const unsigned long long used = used_at(folder, v2);
    return used < limit ? (size_t)(limit - used) : 0;
}

size_t cgroup_memory(const char *root) { return least_limit(root, "memory", memory_at); }

/* The number behind a word and "=", of the first line; 0: there is none. */
static unsigned long long total_of(const char *folder, const char *name, const char *key)
{
    char text[256];
    const char *at = read_text(folder, name, text, sizeof text) ? strstr(text, key) : NULL;
    return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

enum { STALL_US = 100000 };

/* Counts down, so that the least is that of the group with the most. */
static size_t strain_at(const char *folder, bool v2)
{
    char text[1024];
    unsigned long long events = 0;
    if (!v2)
        return SIZE_MAX;
    if (read_text(folder, "memory.events", text, sizeof text))
        events = value_of(text, "high") + value_of(text, "max");
    return SIZE_MAX - (size_t)(events + total_of(folder, "memory.pressure", "total=") / STALL_US);
}

size_t cgroup_memory_strain(const char *root)
{
    char folder[PATH_SIZE];
    snprintf(folder, sizeof folder, "%s/proc/pressure", root);
    const size_t system = (size_t)(total_of(folder, "memory", "total=") / STALL_US);
    return SIZE_MAX - least_limit(root, "memory", strain_at) + system;
}
