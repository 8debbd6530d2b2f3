/* Parser of "key value" text. */
#include "base/conf.h"

#include <ctype.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/text_util.h"

enum { MAX_CONF_BYTES = 1 << 20 };

static char *skip_blanks(char *at)
{
    while (*at == ' ' || *at == '\t')
        at++;
    return at;
}

static int add_line(struct conf *conf, char *line, int number, struct err *err)
{
    char *key = skip_blanks(line);
    for (char *end = key + strlen(key); end > key && isspace((unsigned char)end[-1]);)
        *--end = 0;
    if (*key == 0 || *key == '#')
        return 0;
    char *value = key + strcspn(key, " \t");
    if (*value)
        *value++ = 0;
    if (mem_grow(&conf->entry, &conf->cap, conf->n_entries, sizeof *conf->entry, err) < 0)
        return -1;
    conf->entry[conf->n_entries++] = (struct conf_entry){key, skip_blanks(value), number};
    return 0;
}

int conf_parse(struct conf *conf, const char *text, size_t size, const char *name, struct err *err)
{
    *conf = (struct conf){0};
    if (size > MAX_CONF_BYTES)
        return err_set(err, "%s: has %zu bytes; a text file of at most %d bytes is expected", name,
                       size, MAX_CONF_BYTES);
    if (memchr(text, 0, size))
        return err_set(err, "%s: has a zero byte; plain \"key value\" lines are expected", name);
    conf->text = malloc(size + 1);
    conf->name = strdup(name);
    if (!conf->text || !conf->name) {
        conf_release(conf);
        return err_no_memory(err, "%s", name);
    }
    if (size)
        memcpy(conf->text, text, size);
    conf->text[size] = 0;
    int number = 0;
    for (char *line = conf->text; line;) {
        char *end = strchr(line, '\n');
        if (end)
            *end++ = 0;
        if (add_line(conf, line, ++number, err) < 0) {
            conf_release(conf);
            return -1;
        }
        line = end;
    }
    return 0;
}

int conf_open(struct conf *conf, const char *path, struct err *err)
{
    struct file_map map;
    if (file_map(&map, path, err) < 0)
        return -1;
    int rc = conf_parse(conf, map.data ? (const char *)map.data : "", map.size, path, err);
    file_unmap(&map);
    return rc;
}

void conf_release(struct conf *conf)
{
    free(conf->text);
    free(conf->name);
    free(conf->entry);
    *conf = (struct conf){0};
}

static const struct conf_entry *find_last(const struct conf *conf, const char *key)
{
    for (size_t i = conf->n_entries; i-- > 0;)
        if (strcmp(conf->entry[i].key, key) == 0)
            return &conf->entry[i];
    return NULL;
}

const char *conf_get(const struct conf *conf, const char *key)
{
    const struct conf_entry *entry = find_last(conf, key);
    return entry ? entry->value : NULL;
}

int conf_once(const struct conf *conf, const struct conf_entry *entry, struct err *err)
{
    for (const struct conf_entry *e = conf->entry; e < entry; e++)
        if (strcmp(e->key, entry->key) == 0)
            return err_set(err, "%s: line %d: \"%s\" is on line %d already: remove one of them",
                           conf->name, entry->line, excerpt_of(entry->key, strlen(entry->key)).text,
                           e->line);
    return 0;
}

const char *conf_get_once(const struct conf *conf, const char *key, struct err *err)
{
    const struct conf_entry *found = find_last(conf, key);
    if (!found)
        err_set(err, "%s: has no line \"%s\"", conf->name, key);
    return found && conf_once(conf, found, err) == 0 ? found->value : NULL;
}

int conf_get_size(const struct conf *conf, const char *key, size_t min, size_t max, size_t *value,
                  struct err *err)
{
    const char *text = conf_get_once(conf, key, err);
    if (!text)
        return -1;
    if (!parse_size(text, value) || *value < min || *value > max)
        return err_set(err, "%s: %s is \"%s\", a whole number from %zu to %zu is expected", conf->name,
                       key, text, min, max);
    return 0;
}

int conf_get_double(const struct conf *conf, const char *key, double min, double max, double *value,
                    struct err *err)
{
    const char *text = conf_get_once(conf, key, err);
    if (!text)
        return -1;
    if (!parse_double(text, value) || *value < min || *value > max)
        return err_set(err, "%s: %s is \"%s\", a number from %g to %g is expected", conf->name, key,
                       text, min, max);
    return 0;
}

int conf_get_choice(const struct conf *conf, const char *key, const char *const *names, int *index,
                    struct err *err)
{
    const char *text = conf_get_once(conf, key, err);
    if (!text)
        return -1;
    char known[256] = "";
    for (int i = 0; names[i]; i++) {
        if (strcmp(names[i], text) == 0) {
            *index = i;
            return 0;
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", names[i]);
    }
    return err_set(err, "%s: %s is \"%s\", implemented are: %s", conf->name, key, text, known);
}
