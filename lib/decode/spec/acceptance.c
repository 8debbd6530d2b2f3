/* Reading acceptance files. */
#include "decode/spec/acceptance.h"

#include "base/conf.h"
#include "base/number.h"
#include "base/file.h"

size_t acceptance_typical(double accept[TREE_RANKS])
{
    static const double typical[] = {0.6, 0.12, 0.06, 0.03, 0.02, 0.015, 0.01, 0.01};
    memcpy(accept, typical, sizeof typical);
    return ARRAY_LEN(typical);
}

static int parse_shares(struct acceptance *a, const char *text, const char *name, struct err *err)
{
    double sum = 0;
    a->ranks = 0;
    while (*text) {
        char word[40];
        const size_t len = strcspn(text, " \t");
        double share = -1;
        if (len < sizeof word) {
            memcpy(word, text, len);
            word[len] = 0;
        }
        if (len >= sizeof word || a->ranks == TREE_RANKS || !parse_double(word, &share) ||
            !(share >= 0) || (sum += share) > 1.0001)
            return err_set(
                err, "%s: \"accept\" needs up to %d rates with a sum of at most 1; record it again",
                name, TREE_RANKS);
        a->share[a->ranks++] = share;
        text += len + strspn(text + len, " \t");
    }
    return a->ranks ? 0 : err_set(err, "%s: \"accept\" is empty; record it again", name);
}

/* Copies the value of line `key` to `name`: a model id or the name of a drafter. */
static int read_name(char name[2 * HASH_BYTES + 1], const struct conf *conf, const char *key,
                     struct err *err)
{
    const char *text = conf_get(conf, key);
    if (!text || strlen(text) > 2 * HASH_BYTES)
        return err_set(err, "%s: has no usable line \"%s\"; record it again", conf->name, key);
    memcpy(name, text, strlen(text) + 1);
    return 0;
}

static int read_lines(struct acceptance *a, const struct conf *conf, struct err *err)
{
    const char *shares = conf_get(conf, "accept");
    if (read_name(a->target, conf, "target", err) < 0 || read_name(a->draft, conf, "draft", err) < 0)
        return -1;
    return shares ? parse_shares(a, shares, conf->name, err)
                  : err_set(err, "%s: has no line \"accept\"; record it again", conf->name);
}

int acceptance_parse(struct acceptance *a, const char *text, size_t size, const char *name,
                     struct err *err)
{
    struct conf conf;
    *a = (struct acceptance){0};
    if (conf_parse(&conf, text, size, name, err) < 0)
        return -1;
    const int rc = read_lines(a, &conf, err);
    conf_release(&conf);
    return rc;
}

int acceptance_read(struct acceptance *a, const char *path, struct err *err)
{
    struct file_map map;
    if (file_map(&map, path, err) < 0)
        return -1;
    const int rc = acceptance_parse(a, map.data ? (const char *)map.data : "", map.size, path, err);
    file_unmap(&map);
    return rc;
}
