/* Messages about unknown options. foreign_options.list maps options of other programs to those of these
 * programs; a man page includes it. */
#include "opt/opt_hint.h"

#include "base/mem.h"
#include "base/text_util.h"
#include "opt/opt.h"

/* foreign_options.list, as the Makefile turns it into a string. */
static const char foreign_options[] =
#include "foreign_options.inc"
    ;

enum foreign_kind { FOREIGN_SAME, FOREIGN_OTHER, FOREIGN_NONE, FOREIGN_OPTION };

/* A row of the list; texts are in `text`. */
struct foreign {
    enum foreign_kind kind;
    const char *names; /* separated by ", " */
    const char *ours;  /* with FOREIGN_OPTION: long name without dashes */
    const char *where; /* the program that has `ours`; NULL: bmc-gen */
    const char *note;  /* NULL: none */
    char text[4096];
};

/* Cuts *text at the first `mark`, and returns what follows; NULL: it has none. */
static char *cut_at(char *text, const char *mark)
{
    char *at = text ? strstr(text, mark) : NULL;
    if (!at)
        return NULL;
    *at = 0;
    return at + strlen(mark);
}

/* Reads the row at *at, whose lines become one, and advances *at behind it; false at the end of the list. */
static bool next_foreign(const char **at, struct foreign *row)
{
    static const char *const words[] = {"same", "other", "none"};
    size_t used = 0;
    while (**at == '#')
        *at = strchr(*at, '\n') + 1;
    for (const char *line = *at; *line && (line == *at || *line == ' ') && used < sizeof row->text;) {
        const size_t blanks = strspn(line, " "), len = strcspn(line + blanks, "\n");
        used += (size_t)snprintf(row->text + used, sizeof row->text - used, "%s%.*s", used ? " " : "",
                                 (int)len, line + blanks);
        line += blanks + len + 1;
        if (*line != ' ') {
            *at = line;
            break;
        }
    }
    row->names = row->text;
    char *answer = cut_at(row->text, ": ");
    row->note = cut_at(answer, "; ");
    row->where = cut_at(answer, " of ");
    row->kind = FOREIGN_OPTION;
    row->ours = answer ? answer + strspn(answer, "-") : "";
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (strcmp(row->ours, words[i]) == 0)
            row->kind = (enum foreign_kind)i;
    return used > 0;
}

/* ---- finding the most similar name ---- */

enum { NAME_MAX_BYTES = 31 };

/* Edit distance between an option name and what the user typed (`written`); 0 if that is a proper
 * prefix of the name, SIZE_MAX if the two are too different. */
static size_t name_distance(const char *written, size_t len, const char *name)
{
    const size_t n = strlen(name);
    char word[NAME_MAX_BYTES + 1] = "";
    if (len < 2 || len > NAME_MAX_BYTES || n > NAME_MAX_BYTES)
        return SIZE_MAX;
    if (len >= 3 && len < n && memcmp(written, name, len) == 0)
        return 0;
    memcpy(word, written, len);
    const size_t distance = edit_distance(word, name);
    return distance <= size_min(len, n) / 3 || distance == 1 ? distance : SIZE_MAX;
}

static const char *nearest_name(const struct program *program, const char *written, size_t len)
{
    const char *best = NULL;
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < opt_count(program); i++) {
        const struct opt *opt = opt_nth(program, i);
        const size_t distance =
            opt->kind == OPT_HEADING ? SIZE_MAX : name_distance(written, len, opt->name);
        if (distance < least) {
            least = distance;
            best = opt->name;
        }
    }
    return best;
}

/* ---- the error message ---- */

/* Finds the row of a name. */
static bool find_foreign(struct foreign *row, const char *word, size_t len)
{
    for (const char *at = foreign_options; next_foreign(&at, row);)
        if (text_lists(row->names, word, len))
            return true;
    return false;
}

static bool has_long(const struct program *program, const char *name)
{
    for (size_t i = 0; i < opt_count(program); i++)
        if (opt_nth(program, i)->kind != OPT_HEADING && strcmp(opt_nth(program, i)->name, name) == 0)
            return true;
    return false;
}

/* An unknown option: as the user typed it, and with dashes for the underscores that other programs
 * use. */
struct unknown {
    const char *word;
    int len;
    char name[64]; /* "" if longer than any name */
};

static struct unknown read_unknown(const char *word, size_t len)
{
    struct unknown unknown = {.word = word, .len = (int)len};
    for (size_t i = 0; i < len && len < sizeof unknown.name; i++)
        unknown.name[i] = word[i];
    for (char *at = unknown.name; (at = strchr(at, '_'));)
        *at = '-';
    return unknown;
}

/* Of a short name in a row, the long name behind it, without dashes; "" if none follows, or of a long name. */
static void long_beside(const struct foreign *row, const char *word, char name[64])
{
    const char *at = word[1] != '-' ? strstr(row->names, word) : NULL;
    const char *dashes = at ? strstr(at, ", --") : NULL;
    const bool follows = dashes && dashes == at + strlen(word);
    snprintf(name, 64, "%.*s", follows ? (int)strcspn(dashes + 4, ",") : 0, follows ? dashes + 4 : "");
}

/* Exits with a message about the equivalent of another program's option, if this program has it or
 * no equivalent exists. */
static void explain_foreign(const struct program *program, const struct unknown *unknown)
{
    const char *word = unknown->word;
    const int len = unknown->len;
    struct foreign row;
    if (!find_foreign(&row, unknown->name, strlen(unknown->name)) || row.kind == FOREIGN_OTHER)
        return;
    if (row.kind == FOREIGN_SAME) {
        char name[64];
        long_beside(&row, unknown->name, name);
        if (*name && has_long(program, name))
            opt_usage_error(program, "unknown option %.*s: here it is --%s", len, word, name);
        return;
    }
    if (row.kind == FOREIGN_NONE)
        opt_usage_error(program, "unknown option %.*s: %s", len, word, row.note);
    if (has_long(program, row.ours))
        opt_usage_error(program, "unknown option %.*s: here it is --%s%s%s", len, word, row.ours,
                        row.note ? ", " : "", row.note ? row.note : "");
    if (row.where)
        opt_usage_error(program, "unknown option %.*s: it is --%s of %s", len, word, row.ours,
                        row.where);
}

/* If `word` is a short option with its value attached ("-n5"), the length of the option ("-n");
 * else 0. */
static size_t glued_option(const struct program *program, const char *word, size_t len)
{
    for (size_t n = len; n-- > 2;) {
        const struct opt *opt = opt_find(program, word + 1, n - 1, false);
        if (opt && opt->arg)
            return n;
    }
    return 0;
}

void opt_unknown(const struct program *program, const char *word, size_t len)
{
    const struct unknown unknown = read_unknown(word, len);
    const size_t dashes = strspn(word, "-");
    const char *near =
        *unknown.name ? nearest_name(program, unknown.name + dashes, len - dashes) : NULL;
    const size_t glued = dashes == 1 ? glued_option(program, word, len) : 0;
    explain_foreign(program, &unknown);
    if (near)
        opt_usage_error(program, "unknown option %.*s; did you mean --%s?", (int)len, word, near);
    if (glued)
        opt_usage_error(program, "unknown option %.*s; did you mean %.*s %.*s?", (int)len, word,
                        (int)glued, word, (int)(len - glued), word + glued);
    opt_usage_error(program, "unknown option %.*s", (int)len, word);
}

void opt_unexpected(const struct program *program, const char *word, bool numa, const char *advice)
{
    if (numa && text_choice("distribute|isolate|numactl", word) != SIZE_MAX)
        opt_usage_error(program,
                        "unexpected \"%s\": --numa takes no value; it is llama.cpp's distribute, and "
                        "numactl does isolate and numactl",
                        word);
    opt_usage_error(program, "unexpected \"%s\": %s", word, advice);
}

/* ---- the man page ---- */

/* Prints option names such that man does not hyphenate them. */
static void put_names(const char *names, FILE *out)
{
    char name[64];
    for (const char *at = names; *at;) {
        const size_t len = strcspn(at, " ");
        snprintf(name, sizeof name, "%.*s", (int)len, at);
        fprintf(out, "%s\\%%", at == names ? "" : " ");
        opt_put_roff(name, out);
        at += len + strspn(at + len, " ");
    }
}

static void put_ours(const struct foreign *row, FILE *out)
{
    static const char *const texts[] = {"the same", "not the same", "none"};
    char option[64];
    snprintf(option, sizeof option, "--%s", row->ours);
    if (row->kind == FOREIGN_OPTION)
        put_names(option, out);
    else
        fputs(texts[row->kind], out);
    if (row->where) {
        fputs(" of ", out);
        opt_put_roff(row->where, out);
    }
}

void opt_print_foreign(const struct program *program, FILE *out)
{
    (void)program;
    struct foreign row;
    for (const char *at = foreign_options; next_foreign(&at, &row);) {
        fputs("T{\n.ad l\n", out);
        put_names(row.names, out);
        fputs("\nT}\tT{\n.ad l\n", out);
        put_ours(&row, out);
        if (row.note) {
            fputs(row.kind == FOREIGN_NONE ? ": " : "; ", out);
            opt_put_roff(row.note, out);
        }
        fputs("\nT}\n", out);
    }
}
