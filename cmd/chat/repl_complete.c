/* Completes what is typed in a conversation: commands, settings and names of files. */
#include <dirent.h>
#include <string.h>

#include "base/file.h"
#include "chat/repl.h"

/* Candidates for a word: their longest common beginning. */
struct candidates {
    const char *word;
    size_t len, n;
    char common[256];
};

static void offer(struct candidates *c, const char *name)
{
    size_t same = 0;
    if (strncmp(name, c->word, c->len) != 0)
        return;
    if (c->n++ == 0)
        snprintf(c->common, sizeof c->common, "%s", name);
    while (c->common[same] && c->common[same] == name[same])
        same++;
    c->common[same] = 0;
}

/* Offers the files of the word's folder. Hidden ones are not offered unless the word begins with a dot. */
static bool offer_files(struct candidates *c, const char *word)
{
    const char *slash = strrchr(word, '/');
    char folder[4096], path[4096 + 256];
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - word + 1) : 1, slash ? word : ".");
    c->word = slash ? slash + 1 : word;
    c->len = strlen(c->word);
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    while (dir && (entry = readdir(dir)))
        if (entry->d_name[0] != '.' || c->word[0] == '.')
            offer(c, entry->d_name);
    if (dir)
        closedir(dir);
    snprintf(path, sizeof path, "%s/%s", folder, c->common);
    return c->n == 1 && file_is_folder(path);
}

int repl_complete(void *arg, const char *line, struct buf *rest, struct err *err)
{
    const struct repl *repl = arg;
    const size_t len = strcspn(line, " \t");
    struct candidates c = {.word = line, .len = len};
    const char *end = " ", *name;
    if (!line[len]) {
        for (size_t i = 0; (name = repl_command_name(i)); i++)
            offer(&c, name);
    } else {
        c.word += len + strspn(line + len, " \t");
        c.len = strlen(c.word);
        if (strncmp(line, "/set", len) == 0 && len == strlen("/set"))
            for (size_t i = 0; (name = repl_setting_name(repl, i)); i++)
                offer(&c, name);
        else if (repl_takes_file(line, len))
            end = offer_files(&c, c.word) ? "/" : "";
    }
    if (!c.n || strlen(c.common) < c.len)
        return 0;
    if (buf_add(rest, c.common + c.len, strlen(c.common) - c.len, err) < 0)
        return -1;
    return c.n == 1 ? buf_add(rest, end, strlen(end), err) : 0;
}
