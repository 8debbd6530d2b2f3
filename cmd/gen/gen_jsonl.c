/* bmc-gen --jsonl: serves the requests of the input in this process or on all ranks; --render-chat: prints the prompts
 * that conversations become. */

#include "gen/gen.h"
#include "gen/gen_ranks.h"
#include "serve/dispatcher.h"
#include "serve/lines.h"

/* Serves requests in this process. */
static int serve_alone(struct gen *gen, const struct serve_io *io, struct err *err)
{
    struct gen_stats stats;
    return gen_begin_save(gen, err) < 0 || serve_lines(&gen->serve, io, &stats, err) < 0 ||
                   gen_end_save(gen, err) < 0 || gen_end_receipts(gen, err) < 0
               ? -1
               : gen_report(gen, &stats, err);
}

/* Serves requests as rank 0 under data parallelism. */
static int serve_by_ranks(struct gen *gen, const struct serve_io *io, struct err *err)
{
    struct dispatch dispatch = {
        .ranks = gen->ranks,
        .slots = session_options(gen->session)->batch / size_max(1, gen->options->beams),
    };
    if (dispatch_lines(&gen->serve, io, &dispatch, err) < 0)
        return -1;
    gen->counts = &dispatch.counts;
    const int rc = gen_report(gen, &dispatch.counts.gen, err);
    gen->counts = NULL;
    return rc;
}

int gen_jsonl(struct gen *gen, struct err *err)
{
    const struct gen_options *o = gen->options;
    const bool data_parallel = gen->ranks && gen->parallelism == DATA_PARALLEL;
    const size_t by_memory = o->memory_bytes ? GEN_AS_FIT : JSONL_BATCH;
    struct lines_run run;
    gen_hint_batch(gen, 0);
    if (gen_open_session(gen, o->batch ? o->batch : by_memory, gen->model->config.context, err) < 0)
        return -1;
    if (data_parallel && gen->ranks->rank > 0)
        return worker_run(&gen->serve, gen->ranks, rank_name().text, err);
    if (!data_parallel)
        gen_hint_terminal(gen, "requests, a JSON object per line,");
    if (gen_begin_lines(gen, &run, err) < 0)
        return -1;
    const int rc = (data_parallel ? serve_by_ranks : serve_alone)(gen, &run.io, err);
    gen_end_lines(&run, rc);
    return rc;
}

int gen_verdict(struct gen *gen, const char *what, struct err *err)
{
    gen->over = true;
    gen_note_ignored(gen, gen->ignored);
    return cli_interrupted ? 0 : lines_failed(gen->n_failed, gen->n_requests, what, err);
}

/* ---- --render-chat ---- */

static int render_text(struct gen *gen, struct err *err)
{
    AUTO(buf_release) struct buf message = {0};
    AUTO(marked_release) struct marked_text out = {0};
    gen_hint_terminal(gen, "the prompt");
    int rc = gen_read_text(gen->options, false, &message, err);
    const struct conversation said = {
        .user = buf_text(&message), .user_len = message.len, .tools = gen->tools};
    if (rc == 0)
        rc = chat_prompts_render(&gen->serve.chat, &said, 0, &out, err);
    return rc < 0 ? -1 : gen_put(&out.text, err);
}

/* Renders the conversation of a request, or with --chat its prompt as one user message. */
static int render_request(struct gen *gen, const struct request *request, struct marked_text *out,
                          struct err *err)
{
    struct conversation conversation = serve_conversation(request);
    if (!json_object_get(request->root, "tools") && !request->no_tools)
        conversation.tools = gen->tools;
    conversation.user = gen->options->chat ? request->prompt.text : NULL;
    conversation.user_len = request->prompt.len;
    if (!request->messages && !conversation.user)
        return err_set(err, "\"messages\" is expected");
    return chat_prompts_open(&gen->serve.chat, err) < 0
               ? -1
               : chat_prompts_render(&gen->serve.chat, &conversation, CHAT_KEEPS_PARTS, out, err);
}

/* Writes the line of a result: the prompt, or why there is none. */
static int put_rendered(const struct request *request, const char *name, const char *text, size_t len,
                        struct err *err)
{
    AUTO(buf_release) struct buf out = {0};
    AUTO(json_auto)
    json_t *line = json_pack("{s:O*, s:o}", "id", request->id, name, json_text(text, len));
    int rc = line ? json_write_line(line, &out, err) : err_no_memory(err, "a result");
    return rc < 0 ? -1 : gen_put_line(&out, err);
}

static int render_line(struct gen *gen, const char *line, size_t len, struct err *err)
{
    struct request request = {0};
    struct err why;
    AUTO(marked_release) struct marked_text out = {0};
    int rc = lines_check(line, &why);
    if (rc == 0)
        rc = request_open(&request, line, len, gen->options->lenient ? REQUEST_LENIENT : 0, &why);
    gen->ignored |= request.ignored;
    if (rc == 0)
        rc = request_apply(&request, &why);
    if (rc == 0)
        rc = render_request(gen, &request, &out, &why);
    gen->n_failed += rc < 0;
    rc = rc < 0 ? put_rendered(&request, "error", why.text, strlen(why.text), err)
                : put_rendered(&request, "prompt", buf_text(&out.text), out.text.len, err);
    request_close(&request);
    return rc;
}

static int render_lines(struct gen *gen, struct err *err)
{
    struct lines in;
    const char *line;
    size_t len, total;
    int got;
    gen_hint_terminal(gen, "requests, a JSON object per line,");
    if (gen_open_lines(gen, &in, &total, err) < 0)
        return -1;
    while ((got = lines_next(&in, true, &line, &len, err)) == GEN_REQUEST) {
        gen->n_requests++;
        if (render_line(gen, line, len, err) < 0) {
            got = -1;
            break;
        }
    }
    gen_close_lines(&in);
    return got < 0 ? -1 : gen_verdict(gen, "requests", err);
}

int gen_render_chat(struct gen *gen, struct err *err)
{
    return gen->options->jsonl ? render_lines(gen, err) : render_text(gen, err);
}
