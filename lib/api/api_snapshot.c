/* The public API: saved sequences. */
#include "api/api.h"
#include "decode/snapshot.h"
#include "quant/cache_types.h"

static int save_sequence(struct bmc_context *c, size_t sequence, const char *path, struct err *err)
{
    if (api_given(path, "path", err) < 0 || api_check_sequence(c, sequence, err) < 0)
        return -1;
    const struct ids *tokens = &c->tokens[sequence];
    const struct saved_seq saved = {.token = tokens->id,
                                    .n_tokens = tokens->len,
                                    .n_prompt = tokens->len,
                                    .sampling = &c->serve.options.sampling};
    if (!tokens->len)
        return err_code(err, ERR_INVALID, "sequence %zu is empty: there is nothing to save", sequence);
    for (size_t i = 0; i < bmc_model_lora(c->model); i++)
        if (api_lora_factors(c, sequence)[i] != 1)
            return err_code(err, ERR_INVALID,
                            "sequence %zu has LoRA factors of its own: snapshots are of sequences that "
                            "use all adapters",
                            sequence);
    return snapshot_save(path, c->session, sequence, &saved, err);
}

int bmc_save(struct bmc_context *c, size_t sequence, const char *path, struct bmc_error *error)
{
    API_CALL("context", c, save_sequence(c, sequence, path, &err), BMC_BAD_FILE, error);
}

/* Loads the entries of a snapshot's first sequence, except that of the last token if others are to be
 * evaluated, and records their tokens. */
static int load_first(struct bmc_context *c, size_t sequence, const struct snapshot *snapshot,
                      struct err *err)
{
    const struct cache_types types = snapshot_types(snapshot),
                             *own = &session_options(c->session)->kv_types;
    if (!snapshot->file.n_seqs)
        return err_set(err, "%s: has no sequences", snapshot->path);
    if (!snapshot_has_types(snapshot, own))
        return err_set(err,
                       "%s: has KV entries of type %s, the context of %s: open it with that "
                       "cache_type",
                       snapshot->path, cache_types_format(&types).text, cache_types_format(own).text);
    const size_t n = (size_t)snapshot_seq(snapshot, 0)->n_tokens;
    session_begin(c->session, sequence, n, bmc_context_size(c));
    const bool scaled = session_scaled(c->session, sequence);
    const size_t rows = scaled ? 0 : snapshot_tokens_of_rows(c->session, snapshot, 0, n);
    if (n > session_remaining(c->session, sequence))
        return err_code(err, ERR_FULL, "%s: has %zu tokens, the context holds %zu", snapshot->path, n,
                        bmc_context_size(c));
    if (rows && snapshot_load(c->session, sequence, snapshot, 0, rows, err) < 0)
        return -1;
    for (size_t i = 0; i < rows; i++)
        if (ids_add(&c->tokens[sequence], snapshot_tokens(snapshot, 0)[i], err) < 0)
            return -1;
    if (rows == n)
        return 0;
    const struct bmc_input rest = {.size = sizeof rest,
                                   .sequence = sequence,
                                   .ids = snapshot_tokens(snapshot, 0) + rows,
                                   .n_ids = n - rows};
    return api_eval(c, &rest, 1, err);
}

static int load_sequence(struct bmc_context *c, size_t sequence, const char *path, struct err *err)
{
    struct snapshot *snapshot;
    if (api_given(path, "path", err) < 0 || api_check_sequence(c, sequence, err) < 0)
        return -1;
    api_truncate(c, sequence, 0);
    c->expected[sequence] = 0;
    api_set_lora(c, sequence, NULL);
    if (snapshot_open(&snapshot, path, c->model->model, err) < 0)
        return -1;
    const int rc = load_first(c, sequence, snapshot, err);
    snapshot_close(snapshot);
    if (rc < 0) {
        session_clear(c->session, sequence);
        c->tokens[sequence].len = 0;
    }
    return rc;
}

int bmc_load(struct bmc_context *c, size_t sequence, const char *path, struct bmc_error *error)
{
    API_CALL("context", c, load_sequence(c, sequence, path, &err), BMC_BAD_FILE, error);
}
