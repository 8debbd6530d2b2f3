/* Standard input, output and hints of bmc-gen and bmc-spec. */
#include <sys/stat.h>
#include <unistd.h>

#include "base/threads.h"
#include "gen/gen.h"

int gen_read_text(const struct gen_options *o, bool whole, struct buf *text, struct err *err)
{
    AUTO(buf_release) struct buf file = {0};
    int rc = o->prompt ? buf_add(text, o->prompt, strlen(o->prompt), err) : 0;
    if (rc == 0 && (o->file || !o->prompt))
        rc = cli_read_all(o->file ? o->file : "-", &file, err);
    if (!whole && file.len && file.data[file.len - 1] == '\n')
        file.len--;
    if (rc == 0 && o->prompt && file.len)
        rc = buf_add(text, "\n\n", 2, err);
    return rc < 0 ? -1 : buf_add(text, buf_text(&file), file.len, err);
}

int gen_open_lines(const struct gen *gen, struct lines *lines, size_t *total_bytes, struct err *err)
{
    const char *path = gen->options->file;
    struct stat st;
    *total_bytes = 0;
    if (gen->options->prompt) {
        *lines = (struct lines){.source = {.fd = -1, .interrupted = &cli_interrupted}, .ended = true};
        return gen_read_text(gen->options, true, &lines->input, err);
    }
    const int fd = cli_open(path ? path : "-");
    if (fd < 0)
        return err_errno(err, "%s: cannot open", path);
    *lines = (struct lines){.source = {cli_read, cli_readable, fd, &cli_interrupted},
                            .json = gen->options->jsonl};
    *total_bytes = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? (size_t)st.st_size : 0;
    return 0;
}

/* ---- lines in, results out ---- */

static int read_line(void *arg, bool wait, struct serve_input *input, struct err *err)
{
    struct lines_run *run = arg;
    const int got = lines_next(&run->in, wait, &input->json, &input->len, err);
    if (got != GEN_REQUEST)
        return got;
    input->number = run->in.number;
    run->gen->n_requests++;
    return results_expect(&run->out, input->number, err) < 0 ? -1 : GEN_REQUEST;
}

static int write_event(void *arg, uint64_t number, struct buf *text, struct err *err)
{
    const struct lines_run *run = arg;
    (void)number;
    const int rc = run->out.write(text, err);
    buf_release(text);
    return rc;
}

static int write_result(void *arg, const struct serve_result *result, struct buf *text, struct err *err)
{
    struct lines_run *run = arg;
    run->gen->n_failed += result->failed;
    return results_put(&run->out, result->number, text, err);
}

int gen_begin_lines(struct gen *gen, struct lines_run *run, struct err *err)
{
    *run = (struct lines_run){
        .gen = gen,
        .in = {.source = {.fd = -1}},
        .out = {.write = gen_put_line, .unordered = gen->options->unordered},
        .io = {.next = read_line,
               .put = write_result,
               .event = write_event,
               .can_cancel = true,
               .ignored = &gen->ignored,
               .arg = run},
    };
    return gen_open_lines(gen, &run->in, &run->total_bytes, err);
}

void gen_end_lines(struct lines_run *run, int rc)
{
    struct err ignored;
    if (rc < 0)
        (void)!results_end(&run->out, &ignored); /* the run's error is reported */
    results_release(&run->out);
    gen_close_lines(&run->in);
}

void gen_close_lines(struct lines *lines)
{
    lines_release(lines);
    if (lines->source.fd > STDIN_FILENO)
        close(lines->source.fd);
}

int gen_put(const struct buf *text, struct err *err) { return cli_put(buf_text(text), text->len, err); }

int gen_put_line(const struct buf *text, struct err *err)
{
    if (gen_put(text, err) < 0)
        return -1;
    return fflush(stdout) == 0 ? 0 : err_errno(err, "cannot write to standard output");
}

int gen_request_failure(const struct gen_result *result, struct err *err)
{
    *err = *result->error;
    if (err->code == ERR_INVALID)
        err->code = ERR_FAILED;
    return -1;
}

bool gen_is_silent(const struct gen *gen)
{
    return gen->options->quiet || (gen->ranks && gen->ranks->rank > 0);
}

void gen_say_note(void *arg, const char *sentence)
{
    const struct gen *gen = arg;
    cli_say(stderr, "%s: %s\n", gen->program->name, sentence);
}

void gen_hint_terminal(const struct gen *gen, const char *what)
{
    const struct gen_options *o = gen->options;
    const bool reads_stdin = o->file ? strcmp(o->file, "-") == 0 : !o->prompt;
    if (!gen_is_silent(gen) && reads_stdin && isatty(STDIN_FILENO))
        fprintf(stderr, "%s: reading %s from the terminal; Ctrl-D ends the input\n", gen->program->name,
                what);
}

/* Warns if -b is larger than plausible here: in llama.cpp it counts tokens, often 512 or 2048. */
void gen_hint_batch(const struct gen *gen, size_t most)
{
    enum { PLAUSIBLE = 256 };
    const size_t batch = gen->options->batch;
    char has[64] = "the batch may have that many";
    if (gen_is_silent(gen) || batch <= (most ? most : PLAUSIBLE))
        return;
    if (most == 1 && batch <= PLAUSIBLE) {
        fprintf(stderr, "%s: -np %zu: this run has one sequence; batches go with --jsonl\n",
                gen->program->name, batch);
        return;
    }
    if (most)
        snprintf(has, sizeof has, "this run has %zu", most);
    fprintf(stderr,
            "%s: -np %zu: it counts sequences, as -b does here, not tokens, and %s; --chunk is the "
            "number of prompt tokens per forward pass\n",
            gen->program->name, batch, has);
}

void gen_hint_threads(const struct gen *gen)
{
    const struct gen_options *o = gen->options;
    const size_t cores = (size_t)threads_allowed();
    const bool decodes = o->threads > cores;
    if (!gen_is_silent(gen) && (decodes || o->threads_batch > cores))
        fprintf(stderr, "%s: %s %zu: this process may use %zu core%s; more threads are slower\n",
                gen->program->name, decodes ? "-t" : "-tb", decodes ? o->threads : o->threads_batch,
                cores, cores > 1 ? "s" : "");
}

/* Tells of a number of --kv that the context cuts, and of a model without KV entries. */
static void hint_cut(const struct gen *gen)
{
    const struct session_options *s = session_options(gen->session);
    const struct {
        const char *name;
        size_t value;
    } given[] = {{"S", s->kv.window}, {"r", s->kv.r}, {"T", s->kv.T}};
    if (gen->options->kv && !kv_setup(session_kv(gen->session))->shape.layers) {
        cli_say(stderr, "%s: --kv %s has no effect: no layer of this model has KV entries\n",
                gen->program->name, gen->options->kv);
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(given); i++)
        if (given[i].value > s->context && gen->options->kv)
            cli_say(stderr, "%s: --kv %s: %s is cut to the context of %zu tokens, which -c sets\n",
                    gen->program->name, gen->options->kv, given[i].name, s->context);
}

#define OPTION_NAME(kind, field, name, alias, min, max, initial, gguf, generation, option, ...)        \
    [SAMPLING_##field] = option,
static const char *const sampling_options[] = {SAMPLING_PARAMS(OPTION_NAME)};

void gen_hint_greedy(const struct gen *gen)
{
    static const enum sampling_index drawing[] = {
        SAMPLING_top_k,         SAMPLING_top_p,          SAMPLING_min_p,
        SAMPLING_top_n_sigma,   SAMPLING_typical_p,      SAMPLING_xtc_probability,
        SAMPLING_xtc_threshold, SAMPLING_dynatemp_range, SAMPLING_dynatemp_exponent,
        SAMPLING_mirostat,      SAMPLING_mirostat_tau,   SAMPLING_mirostat_eta};
    const struct gen_options *o = gen->options;
    for (size_t i = 0; i < ARRAY_LEN(drawing); i++)
        if (sampling_is_given(&o->sampling, drawing[i]) && gen->serve.options.sampling.temp <= 0 &&
            !o->jsonl && !gen_is_silent(gen)) {
            cli_say(stderr, "%s: --%s has no effect at temperature 0, which is greedy: give --temp\n",
                    gen->program->name, sampling_options[drawing[i]]);
            return;
        }
}

void gen_hint_window(const struct gen *gen)
{
    if (!gen_is_silent(gen))
        hint_cut(gen);
    const struct snapshot *snapshot = gen->options->load_kv ? gen->snapshot : NULL;
    bool dropped = false;
    for (size_t i = 0; snapshot && i < snapshot->file.head->n_sequences; i++)
        dropped = dropped || snapshot_seq(snapshot, i)->first;
    if (dropped && !gen_is_silent(gen) && !kv_setup(session_kv(gen->session))->window)
        cli_say(
            stderr,
            "%s: %s: saved with --kv %s; without it, later tokens attend to more than that window\n",
            gen->program->name, snapshot->path, snapshot->file.head->policy);
}

void gen_note_ignored(const struct gen *gen, foreign_members ignored)
{
    AUTO(buf_release) struct buf note = {0};
    struct err why;
    if (ignored && foreign_note(ignored, &note, &why) == 0)
        fprintf(stderr, "%s: %s\n", gen->program->name, buf_text(&note));
}
