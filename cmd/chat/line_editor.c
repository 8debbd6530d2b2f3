/* Line editing with libedit, or without: HAVE_LIBEDIT comes from the Makefile. */
#include "chat/line_editor.h"

#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <unistd.h>

#include "cli.h"
#include "text/utf8.h"

struct line_editor {
    const char *prompt;
    const volatile sig_atomic_t *stop;
    bool as_is;
    line_complete *complete;
    void *arg;              /* of complete() */
    bool pasting;           /* between the marks of a bracketed paste */
    bool newline;           /* the next byte is a newline */
    unsigned char held[16]; /* bytes that were read ahead */
    size_t n_held;
    struct editline *edit; /* NULL: no editing */
    struct history *history;
};

static bool is_stopped(const struct line_editor *e) { return *e->stop || cli_interrupted; }

/* ---- without libedit ---- */

static int read_plain(struct line_editor *e, struct buf *line, struct err *err)
{
    const size_t before = line->len;
    fputs(e->prompt, stdout);
    fflush(stdout);
    for (;;) {
        char byte;
        const ssize_t n = cli_read(STDIN_FILENO, &byte, 1);
        if (is_stopped(e))
            return LINE_STOPPED;
        if (n < 0 && errno != EIO) /* EIO: the terminal has gone */
            return err_errno(err, "cannot read from the terminal");
        if (n <= 0)
            return line->len > before ? LINE_READ : LINE_END;
        if (byte == '\n')
            return LINE_READ;
        if (buf_add(line, &byte, 1, err) < 0)
            return -1;
    }
}

#ifdef HAVE_LIBEDIT
#include <histedit.h>

#define STRING(x) #x
#define NUMBER(x) STRING(x)
const char *line_editor_version(void) { return NUMBER(LIBEDIT_MAJOR) "." NUMBER(LIBEDIT_MINOR); }

enum { HISTORY_LINES = 1000, MARK_WAIT_MS = 50 };

static volatile sig_atomic_t resized, continued;

static void on_resize(int signal_number)
{
    (void)signal_number;
    resized = 1;
}

static void on_continue(int signal_number)
{
    (void)signal_number;
    continued = 1;
}

static struct line_editor *editor_of(EditLine *edit)
{
    void *editor = NULL;
    el_get(edit, EL_CLIENTDATA, &editor);
    return editor;
}

static char *prompt_of(EditLine *edit) { return (char *)(uintptr_t)editor_of(edit)->prompt; }

/* The next byte: 1, 0 at the end, -1 if stopped or after an error. */
static int next_byte(struct line_editor *e, unsigned char *byte)
{
    if (e->n_held) {
        *byte = e->held[0];
        memmove(e->held, e->held + 1, --e->n_held);
        return 1;
    }
    while (!cli_wait(STDIN_FILENO)) {
        if (is_stopped(e))
            return -1;
        if (resized)
            el_resize(e->edit);
        if (continued) { /* the shell has changed the modes of the terminal */
            el_set(e->edit, EL_PREP_TERM, 0);
            el_set(e->edit, EL_PREP_TERM, 1);
            el_set(e->edit, EL_REFRESH);
        }
        resized = continued = 0;
    }
    return (int)read(STDIN_FILENO, byte, 1);
}

/* After an escape byte: true if the bytes that follow are `mark`; otherwise they are held. */
static bool skip_mark(struct line_editor *e, const char *mark)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    const size_t len = strlen(mark);
    while (e->n_held < len && memcmp(e->held, mark, e->n_held) == 0) {
        const int ready = poll(&input, 1, MARK_WAIT_MS);
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0 || read(STDIN_FILENO, &e->held[e->n_held], 1) != 1)
            return false;
        e->n_held++;
    }
    if (e->n_held < len || memcmp(e->held, mark, len) != 0)
        return false;
    e->n_held -= len;
    memmove(e->held, e->held + len, e->n_held);
    return true;
}

/* Inserts a character that libedit would take for a key. */
static void insert(struct line_editor *e, const char *text)
{
    el_insertstr(e->edit, text);
    el_set(e->edit, EL_REFRESH);
}

/* Reads a byte of which marks of a paste, and control characters in it, have been taken out. */
static int next_typed(struct line_editor *e, unsigned char *byte)
{
    for (;;) {
        const int got = e->newline ? 1 : next_byte(e, byte);
        if (got <= 0)
            return got;
        if (e->newline) {
            e->newline = false;
            *byte = '\n';
            return 1;
        }
        /* Ctrl-D before the terminal was in raw mode is read as NUL, which libedit binds to quoting. */
        if (*byte == 0)
            continue;
        if (*byte == 0x1b && skip_mark(e, e->pasting ? "[201~" : "[200~")) {
            e->pasting = !e->pasting;
            continue;
        }
        if (!e->pasting || *byte >= 0x20)
            return 1;
        if (*byte == '\t')
            insert(e, "\t");
        if (*byte == '\r' && skip_mark(e, "\n"))
            insert(e, "\r");
        if (*byte != '\n' && *byte != '\r')
            continue;
        e->newline = !e->as_is;
        *byte = e->as_is ? '\n' : '\\';
        return 1;
    }
}

static int get_character(EditLine *edit, wchar_t *out)
{
    struct line_editor *e = editor_of(edit);
    char text[UTF8_MAX];
    uint32_t code;
    for (size_t n = 0; n < sizeof text;) {
        const int got = next_typed(e, (unsigned char *)&text[n]);
        if (got <= 0)
            return got;
        const int step = utf8_step(text, ++n);
        if (step == 0)
            continue;
        code = 0xFFFD;
        if (step > 0)
            utf8_decode(text, &code);
        *out = (wchar_t)code;
        return 1;
    }
    *out = 0xFFFD;
    return 1;
}

/* Tab: completes a command; elsewhere it is a character. */
static unsigned char complete_line(EditLine *edit, int key)
{
    struct line_editor *e = editor_of(edit);
    const LineInfo *line = el_line(edit);
    AUTO(buf_release) struct buf typed = {0}, rest = {0};
    struct err ignored;
    (void)key;
    int rc = buf_add(&typed, line->buffer, (size_t)(line->cursor - line->buffer), &ignored);
    if (rc == 0)
        rc = typed.len && typed.data[0] == '/' ? e->complete(e->arg, typed.data, &rest, &ignored)
                                               : buf_add(&rest, "\t", 1, &ignored);
    const bool inserted = rc == 0 && rest.len && el_insertstr(edit, rest.data) == 0;
    return inserted ? CC_REFRESH : CC_REFRESH_BEEP;
}

static void watch(int signal_number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(signal_number, &action, NULL);
}

/* Keys that libedit leaves unbound, some of which would be taken as text: Ctrl or Alt with an arrow, Page Up
 * and Down, Insert. */
static void bind_keys(EditLine *edit)
{
    static const struct {
        const char *key, *command;
    } keys[] = {{"^I", "bmc-complete"},          {"^R", "em-inc-search-prev"},
                {"\\e[1;5C", "em-next-word"},    {"\\e[1;5D", "ed-prev-word"},
                {"\\e[1;3C", "em-next-word"},    {"\\e[1;3D", "ed-prev-word"},
                {"\\e[1;5A", "ed-prev-history"}, {"\\e[1;5B", "ed-next-history"},
                {"\\e[5~", "ed-prev-history"},   {"\\e[6~", "ed-next-history"},
                {"\\e[2~", "ed-redisplay"},      {"\\e[3;5~", "em-delete-next-word"}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        el_set(edit, EL_BIND, keys[i].key, keys[i].command, NULL);
}

static int open_edit(struct line_editor *e, const char *program, struct err *err)
{
    const char *terminal = getenv("TERM");
    HistEvent event;
    if (!terminal || !*terminal || strcmp(terminal, "dumb") == 0)
        return 0;
    /* libedit converts text as the locale says: UTF-8 is all that models know */
    if (!setlocale(LC_CTYPE, "") || strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8");
    e->edit = el_init(program, stdin, stdout, stderr);
    e->history = history_init();
    if (!e->edit || !e->history)
        return err_no_memory(err, "the line editor");
    history(e->history, &event, H_SETSIZE, HISTORY_LINES);
    history(e->history, &event, H_SETUNIQUE, 1);
    el_set(e->edit, EL_CLIENTDATA, e);
    el_set(e->edit, EL_PROMPT, prompt_of);
    el_set(e->edit, EL_EDITOR, "emacs");
    el_set(e->edit, EL_HIST, history, e->history);
    el_set(e->edit, EL_GETCFN, get_character);
    el_set(e->edit, EL_SETTY, "-d", "-inlcr", "-icrnl",
           NULL); /* line ends of pastes arrive unchanged */
    el_set(e->edit, EL_ADDFN, "bmc-complete", "Complete commands and names of files", complete_line);
    bind_keys(e->edit);
    el_source(e->edit, NULL); /* the user's ~/.editrc */
    watch(SIGWINCH, on_resize);
    watch(SIGCONT, on_continue);
    return 0;
}

static void close_edit(struct line_editor *e)
{
    if (e->edit)
        el_end(e->edit);
    if (e->history)
        history_end(e->history);
}

static void bracket_pastes(bool on)
{
    fputs(on ? "\033[?2004h" : "\033[?2004l", stdout);
    fflush(stdout);
}

static int read_edited(struct line_editor *e, struct buf *line, struct err *err)
{
    int n = 0;
    errno = 0;
    bracket_pastes(true);
    const char *text = el_gets(e->edit, &n);
    const int why = errno;
    bracket_pastes(false);
    if (is_stopped(e))
        return LINE_STOPPED;
    if (!text && n < 0 && why && why != EIO) {
        errno = why;
        return err_errno(err, "cannot read from the terminal");
    }
    if (!text || n <= 0)
        return LINE_END;
    return buf_add(line, text, (size_t)n - (text[n - 1] == '\n'), err) < 0 ? -1 : LINE_READ;
}

static void remember(struct line_editor *e, const char *line)
{
    HistEvent event;
    history(e->history, &event, H_ENTER, line);
}
#else
const char *line_editor_version(void) { return NULL; }

static int open_edit(struct line_editor *e, const char *program, struct err *err)
{
    (void)e;
    (void)program;
    (void)err;
    return 0;
}

static void close_edit(struct line_editor *e) { (void)e; }

static int read_edited(struct line_editor *e, struct buf *line, struct err *err)
{
    return read_plain(e, line, err);
}

static void remember(struct line_editor *e, const char *line)
{
    (void)e;
    (void)line;
}
#endif

int line_editor_open(struct line_editor **out, const char *program, const volatile sig_atomic_t *stop,
                     line_complete *complete, void *arg, struct err *err)
{
    struct line_editor *e = *out = calloc(1, sizeof *e);
    if (!e)
        return err_no_memory(err, "the line editor");
    e->stop = stop;
    e->complete = complete;
    e->arg = arg;
    return open_edit(e, program, err);
}

void line_editor_close(struct line_editor *e)
{
    if (e)
        close_edit(e);
    free(e);
}

int line_editor_read(struct line_editor *e, const char *prompt, bool as_is, struct buf *line,
                     struct err *err)
{
    e->prompt = prompt;
    e->as_is = as_is;
    return e->edit ? read_edited(e, line, err) : read_plain(e, line, err);
}

void line_editor_remember(struct line_editor *e, const char *line)
{
    if (e->edit && *line)
        remember(e, line);
}
