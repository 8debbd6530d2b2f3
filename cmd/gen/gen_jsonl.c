/* bmc-gen --jsonl: serves the requests of the input in this process or on all ranks; --render-chat: prints the prompts
 * that conversations become. */

#include "gen/gen.h"
#include "gen/gen_ranks.h"
#include "serve/dispatcher.h"
#include "serve/lines.h"
#include "serve/result.h"

struct jsonl_run {
    struct gen *gen;
    struct lines in;
    struct results out;
};

static int read_input(void *arg, bool wait, struct serve_input *input, struct err *err)
{
    struct jsonl_run *run = arg;
    const int got = lines_next(&run->in, wait, &input->json, &input->len, err);
    if (got != GEN_REQUEST)
        return got;
    input->number = run->in.number;
    run->gen->n_requests++;
    return results_expect(&run->out, input->number, err) < 0 ? -1 : GEN_REQUEST;
}

static int write_event(void *arg, struct buf *text, struct err *err)
{
    const struct jsonl_run *run = arg;
    const int rc = run->out.write(text, err);
    buf_release(text);
    return rc;
}

static int write_result(void *arg, const struct serve_result *result, struct buf *text, struct err *err)
{
    struct jsonl_run *run = arg;
    run->gen->n_failed += result->failed;
    return results_put(&run->out, result->number, text, err);
}

/* Serves requests in this process. */
static int serve_alone(struct gen *gen, const struct serve_io *io, struct err *err)
{
    struct gen_stats stats;
    return gen_begin_save(gen, err) < 0 || serve_lines(&gen->serve, io, &stats, err) < 0 ||
                   gen_end_save(gen, err) < 0
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
    struct jsonl_run run = {.gen = gen, .out = {.write = gen_put_line, .unordered = o->unordered}};
    size_t total_bytes;
    gen_hint_batch(gen, 0);
    if (gen_open_session(gen, o->batch ? o->batch : by_memory, gen->model->config.context, err) < 0)
        return -1;
    if (data_parallel && gen->ranks->rank > 0)
        return worker_run(&gen->serve, gen->ranks, rank_name().text, err);
    if (!data_parallel)
        gen_hint_terminal(gen, "requests, a JSON object per line,");
    if (gen_open_lines(gen, &run.in, &total_bytes, err) < 0)
        return -1;
    const struct serve_io io = {
        .next = read_input, .put = write_result, .event = write_event, .can_cancel = true, .arg = &run};
    struct err ignored;
    const int rc = (data_parallel ? serve_by_ranks : serve_alone)(gen, &io, err);
    if (rc < 0)
        (void)!results_end(&run.out, &ignored); /* the run's error is reported */
    results_release(&run.out);
    gen_close_lines(&run.in);
    return rc;
}

int gen_jsonl_verdict(struct gen *gen, struct err *err)
{
    gen->over = true;
    gen_note_ignored(gen, gen->ignored);
    return cli_interrupted ? 0 : lines_failed(gen->n_failed, gen->n_requests, "requests", err);
}

/* ---- --render-chat ---- */

static int render_text(struct gen *gen, struct err *err)
{
    struct buf message = {0};
    struct marked_text out = {0};
    json_t *messages = NULL;
    int rc = -1;
    gen_hint_terminal(gen, "the prompt");
    if (gen_read_text(gen->options, false, &message, err) == 0 &&
        (messages = chat_user_message(buf_text(&message), message.len, err)) != NULL) {
        const struct conversation conversation = {.messages = messages};
        rc = chat_prompts_render(&gen->chat, &conversation, 0, &out, err);
    }
    if (rc == 0)
        rc = gen_put(&out.text, err);
    json_decref(messages);
    buf_release(&message);
    marked_release(&out);
    return rc;
}

/* Renders the conversation of a request. */
static int render_request(struct gen *gen, const struct request *request, struct buf *text,
                          struct err *err)
{
    struct conversation conversation = serve_conversation(request);
    struct marked_text out = {0};
    json_t *messages = NULL;
    int rc = 0;
    if (!request->messages && request->prompt.text && gen->options->chat) {
        messages = chat_user_message(request->prompt.text, request->prompt.len, err);
        conversation.messages = messages;
        rc = messages ? 0 : -1;
    } else if (!request->messages) {
        rc = err_set(err, "\"messages\" is expected");
    }
    if (rc == 0 && chat_prompts_open(&gen->chat, err) == 0)
        rc = chat_prompts_render(&gen->chat, &conversation, CHAT_KEEPS_PARTS, &out, err);
    else
        rc = -1;
    if (rc == 0)
        rc = buf_add(text, buf_text(&out.text), out.text.len, err);
    json_decref(messages);
    marked_release(&out);
    return rc;
}

/* Writes the line of a result: the prompt, or why there is none. */
static int put_result(const struct request *request, bool failed, const char *text, size_t len,
                      struct err *err)
{
    json_t *line = json_object();
    struct buf out = {0};
    int rc = request->id ? json_put(line, "id", json_incref((json_t *)(uintptr_t)request->id), err) : 0;
    if (rc == 0)
        rc = json_put(line, failed ? "error" : "prompt", json_text(text, len), err);
    if (rc == 0)
        rc = json_append(line, JSON_COMPACT, &out, err);
    if (rc == 0)
        rc = buf_add(&out, "\n", 1, err);
    if (rc == 0)
        rc = gen_put_line(&out, err);
    json_decref(line);
    buf_release(&out);
    return rc;
}

static int render_line(struct gen *gen, const char *line, size_t len, struct err *err)
{
    struct request request = {0};
    struct err why;
    struct buf text = {0};
    int rc = lines_check(line, &why);
    if (rc == 0)
        rc = request_open(&request, line, len, gen->options->lenient, &why);
    gen->ignored |= request.ignored;
    if (rc == 0)
        rc = request_apply(&request, &why);
    if (rc == 0)
        rc = render_request(gen, &request, &text, &why);
    gen->n_failed += rc < 0;
    rc = rc < 0 ? put_result(&request, true, why.text, strlen(why.text), err)
                : put_result(&request, false, buf_text(&text), text.len, err);
    request_close(&request);
    buf_release(&text);
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
    return got < 0 ? -1 : gen_jsonl_verdict(gen, err);
}

int gen_render_chat(struct gen *gen, struct err *err)
{
    return gen->options->jsonl ? render_lines(gen, err) : render_text(gen, err);
}
