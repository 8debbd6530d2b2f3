/* bmc-gen --embed: embeddings of texts, one per line. */
#include <string.h>

#include "gen/gen.h"
#include "serve/text_lines.h"

static int embed_all(struct gen *gen, struct lines *in, struct err *err)
{
    const struct gen_options *o = gen->options;
    enum embed_pooling pooling = o->pooling < 0 ? EMBED_MEAN : (enum embed_pooling)o->pooling;
    if (o->pooling < 0 && embed_declared(gen->model, &pooling, err) < 0)
        return -1;
    struct results out = {.write = gen_put_line, .unordered = o->unordered};
    struct embed_stats stats;
    struct text_lines job = {.session = gen->session,
                             .lines = in,
                             .results = &out,
                             .parse_special = !o->no_parse_special,
                             .lenient = o->lenient,
                             .pooling = pooling,
                             .normalize = o->normalize ||
                                          (!o->no_normalize && gen->model->config.embed_normalize)};
    const int rc = text_lines_embed(&job, &stats, err);
    results_release(&out);
    if (rc < 0)
        return -1;
    const struct gen_stats counts = {
        .sequences = stats.texts, .prefill_tokens = stats.tokens, .prefill_ms = stats.ms};
    if (gen_report(gen, &counts, err) < 0)
        return -1;
    gen_note_ignored(gen, job.ignored);
    return cli_interrupted ? 0 : lines_failed(job.n_failed, job.n_lines, "lines", err);
}

/* The input: the lines of -p and a file, or those of a file or standard input as they come. */
static int open_input(const struct gen *gen, struct lines *in, struct err *err)
{
    size_t total_bytes;
    if (!gen->options->prompt)
        return gen_open_lines(gen, in, &total_bytes, err);
    *in = (struct lines){.source = {.fd = -1, .interrupted = &cli_interrupted}, .ended = true};
    return gen_read_text(gen->options, true, &in->input, err);
}

int gen_embed(struct gen *gen, struct err *err)
{
    const struct gen_options *o = gen->options;
    struct lines in = {.source = {.fd = -1}};
    gen_hint_batch(gen, 0);
    gen_hint_terminal(gen, o->jsonl ? "texts, a JSON object per line," : "texts, one per line,");
    int rc = open_input(gen, &in, err);
    if (rc == 0)
        rc = gen_open_session(gen, o->batch ? o->batch : JSONL_BATCH, gen->model->config.context, err);
    if (rc == 0)
        rc = embed_all(gen, &in, err);
    gen_close_lines(&in);
    return rc;
}
