/* Checks a run's input and output files before anything is computed. */
#include "opt/opt_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file_head.h"
#include "base/mem.h"
#include "base/output_path.h"
#include "cli.h"
#include "format/detect.h"
#include "model/family/family.h"

struct use {
    const char *name; /* the option's long name, or a description for messages */
    bool is_option, writes;
    const char *path;
    struct output_path place;
};

/* Files registered so far; a process has one run. */
static struct {
    struct use *use;
    size_t n, cap;
    bool lost;             /* out of memory for an entry */
    char shape_path[8192]; /* storage for opt_files_input_shape() */
} files;

/* The kind of an output: besides blank files it replaces only those of its own kind. */
static const enum file_kind kind_of[OPT_FILE_ROLES] = {
    [OPT_WRITES_STATS] = KIND_STATS,
    [OPT_WRITES_CHART] = KIND_CHART,
    [OPT_WRITES_HEADS] = KIND_HEADS,
    [OPT_WRITES_RANGES] = KIND_RANGES,
    [OPT_WRITES_SENSITIVITY] = KIND_SENSITIVITY,
    [OPT_WRITES_LOGITS] = KIND_LOGITS,
    [OPT_WRITES_RECEIPT] = KIND_RECEIPT,
    [OPT_WRITES_PRESSURE] = KIND_PRESSURE,
    [OPT_WRITES_MODEL] = KIND_MODEL,
    [OPT_WRITES_SNAPSHOT] = KIND_SNAPSHOT,
    [OPT_WRITES_PROFILE] = KIND_PROFILE,
    [OPT_WRITES_ACCEPTANCE] = KIND_ACCEPTANCE,
    [OPT_WRITES_IMATRIX] = KIND_IMATRIX,
};

static void remember(const struct use *use)
{
    struct err ignored; /* opt_files_output() reports it */
    if (mem_grow(&files.use, &files.cap, files.n, sizeof *files.use, &ignored) < 0)
        files.lost = true;
    else
        files.use[files.n++] = *use;
}

/* Registers an input; missing files and pipes cannot be overwritten, so they are skipped. */
static void add_input(const char *name, bool is_option, const char *path)
{
    struct use use = {.name = name, .is_option = is_option, .path = path};
    if (stat(path, &use.place.st) < 0)
        return;
    use.place.kind = S_ISDIR(use.place.st.st_mode) ? OUTPUT_FOLDER : OUTPUT_FILE;
    if (S_ISREG(use.place.st.st_mode) || use.place.kind == OUTPUT_FOLDER)
        remember(&use);
}

void opt_files_input(const char *name, const char *path) { add_input(name, false, path); }

void opt_files_input_shape(const char *name, const char *shape)
{
    struct err ignored; /* without the data folder no shape file can be read */
    char folder[4096];
    if (cli_models_dir(folder, sizeof folder, &ignored) < 0)
        return;
    shape_path(folder, shape, files.shape_path, sizeof files.shape_path);
    add_input(name, false, files.shape_path);
}

/* Registers the regular file, if any, to which the shell redirected a standard descriptor. */
static void add_standard(int fd, const char *name)
{
    struct use use = {.name = name, .writes = fd != STDIN_FILENO, .path = name};
    use.place.kind = OUTPUT_FILE;
    if (fstat(fd, &use.place.st) == 0 && S_ISREG(use.place.st.st_mode))
        remember(&use);
}

/* True if the folder contains this file under any name. Of regular files only those are looked at that may be the same
 * one: folders of a prefix cache have a hundred thousand. */
static bool folder_holds(const char *folder, const struct output_path *file)
{
    DIR *dir = opendir(folder);
    const char *slash = strrchr(file->path, '/'), *name = slash ? slash + 1 : file->path;
    struct dirent *entry;
    struct stat st;
    bool found = false;
    while (dir && !found && (entry = readdir(dir)))
        if (entry->d_type != DT_REG || file->st.st_nlink > 1 || strcmp(entry->d_name, name) == 0)
            found = fstatat(dirfd(dir), entry->d_name, &st, 0) == 0 && st.st_dev == file->st.st_dev &&
                    st.st_ino == file->st.st_ino;
    if (dir)
        closedir(dir);
    return found;
}

static const char *dashes(const struct use *use) { return use->is_option ? "--" : ""; }

/* True if the output is written in place, without a temporary file. */
static bool is_direct(const struct use *use)
{
    return use->place.kind == OUTPUT_STREAM || use->place.kind == OUTPUT_OPEN;
}

/* What an output may replace that the run reads: nothing, models of the source's folder, or (snapshots, which are
 * resumed, and files that are updated) the file itself. */
enum replaces { REPLACES_NOTHING, REPLACES_OF_FOLDER, REPLACES_ITSELF };

/* Fails if an output would overwrite another file of the run. Outputs written in place may share
 * one file. */
static int check_other(const struct use *out, const struct use *other, enum replaces replaces,
                       struct err *err)
{
    const bool same = output_path_same(&other->place, &out->place);
    if (other->writes)
        return same && !is_direct(out)
                   ? err_set(err, "%s%s and --%s are one file, %s: each needs its own", dashes(other),
                             other->name, out->name, out->path)
                   : 0;
    if (replaces == REPLACES_ITSELF)
        return 0;
    if (same)
        return err_set(err, "--%s: %s is read (%s%s), so it is not replaced: give another name",
                       out->name, out->path, dashes(other), other->name);
    if (replaces == REPLACES_NOTHING && other->place.kind == OUTPUT_FOLDER &&
        out->place.kind == OUTPUT_FILE && folder_holds(other->path, &out->place))
        return err_set(
            err, "--%s: %s is a file of %s, which is read, so it is not replaced: give another name",
            out->name, out->path, other->path);
    return 0;
}

static void check_others(const struct program *program, const struct use *out, enum replaces replaces)
{
    struct err err;
    for (size_t i = 0; i < files.n; i++)
        if (strcmp(files.use[i].name, out->name) != 0 &&
            check_other(out, &files.use[i], replaces, &err) < 0)
            opt_usage_error(program, "%s", err.text);
}

/* Checks that the output can be created. Does not open pipes, which would block. */
static int check_writable(const struct use *use, struct err *err)
{
    struct outfile out;
    if (use->place.kind == OUTPUT_STREAM)
        return access(use->place.path, W_OK) < 0 ? err_errno(err, "%s: cannot be written", use->path)
                                                 : 0;
    if (use->place.kind == OUTPUT_OPEN && (fcntl(use->place.fd, F_GETFL) & O_ACCMODE) == O_RDONLY)
        return err_set(err, "%s: cannot be written, it is open for reading only", use->path);
    if (outfile_open(&out, use->path, err) < 0)
        return -1;
    outfile_abort(&out);
    return 0;
}

/* True for a file that holds nothing to lose. */
static bool is_blank(const struct use *use, enum opt_file role)
{
    if (role >= OPT_UPDATES) /* writers of these check once more, for empty files */
        return use->place.st.st_size == 0;
    char text[64];
    const size_t n = file_head(use->place.path, text, sizeof text - 1);
    text[n] = 0;
    return (size_t)use->place.st.st_size == n && strspn(text, " \t\r\n") == n;
}

static int check_kind(const struct use *use, enum opt_file role, enum file_kind found, struct err *err)
{
    if (role == OPT_WRITES_SNAPSHOT && is_direct(use))
        return err_set(
            err,
            "%s: is not the name of a regular file, which a snapshot must be: give one, as story.kv",
            use->path);
    if (!S_ISREG(use->place.st.st_mode) || found == kind_of[role] || is_blank(use, role))
        return 0;
    if (found != KIND_OTHER)
        return err_set(err, "%s: is a %s, so it is not replaced: give another name", use->path,
                       file_kind_name(found));
    if (is_direct(use))
        return 0;
    return err_set(err, "%s: exists and is no %s, so it is not replaced: give another name", use->path,
                   file_kind_name(kind_of[role]));
}

int opt_files_output(const struct program *program, const char *option, const char *path,
                     enum opt_file role, struct err *err)
{
    struct use use = {.name = option, .is_option = true, .writes = true, .path = path};
    char name[sizeof "/dev/fd/2147483647"];
    if (!*path)
        opt_usage_error(program, "--%s: the name is empty", option);
    if (output_path_find(&use.place, path, err) < 0)
        return -1;
    if (files.lost)
        return err_no_memory(err, "the list of files");
    snprintf(name, sizeof name, "/dev/fd/%d", use.place.fd);
    const enum file_kind found = file_detect(use.place.kind == OUTPUT_OPEN ? name : use.place.path);
    check_others(program, &use,
                 role < OPT_UPDATES || found != kind_of[role] ? REPLACES_NOTHING
                 : role == OPT_WRITES_MODEL                   ? REPLACES_OF_FOLDER
                                                              : REPLACES_ITSELF);
    if (check_kind(&use, role, found, err) < 0 || check_writable(&use, err) < 0)
        return -1;
    remember(&use);
    return 0;
}

/* The file that an option names, or NULL. */
static const char *path_of(const struct opt *opt, const void *options)
{
    return opt->file ? *(const char *const *)((const char *)options + opt->at) : NULL;
}

int opt_files_check(const struct program *program, const void *options, struct err *err)
{
    add_standard(STDIN_FILENO, "standard input");
    add_standard(STDOUT_FILENO, "standard output");
    add_standard(STDERR_FILENO, "standard error");
    for (size_t i = 0; i < program->n_opts; i++) {
        const char *path = path_of(&program->opts[i], options);
        if (path && !*path)
            opt_usage_error(program, "--%s: the name is empty", program->opts[i].name);
        if (path && program->opts[i].file == OPT_READS)
            add_input(program->opts[i].name, true, path);
    }
    for (size_t i = 0; i < program->n_opts; i++) {
        const char *path = path_of(&program->opts[i], options);
        if (path && program->opts[i].file != OPT_READS &&
            opt_files_output(program, program->opts[i].name, path, program->opts[i].file, err) < 0)
            return -1;
    }
    return 0;
}
