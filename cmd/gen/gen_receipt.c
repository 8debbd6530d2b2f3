/* bmc-gen --receipt: writes the receipts of a run. */
#include "base/file.h"
#include "gen/gen.h"
#include "serve/receipt.h"

struct gen_receipts {
    struct receipts *receipts;
    struct outfile out;
    struct receipt_key key;
    bool is_open;
};

static int write_receipt(void *arg, const struct gen_result *result, json_t *receipt, struct err *err)
{
    struct gen *gen = arg;
    AUTO(buf_release) struct buf line = {0};
    if (result->finish == FINISHED_CANCELLED)
        return 0;
    return receipt_write(receipt, gen->options->receipt_key ? &gen->receipts->key : NULL, &line, err) <
                   0
               ? -1
               : outfile_write(&gen->receipts->out, line.data, line.len, err);
}

int gen_begin_receipts(struct gen *gen, struct err *err)
{
    struct gen_receipts *r;
    if (!gen->options->receipt)
        return 0;
    if (gen->ranks && gen->parallelism == DATA_PARALLEL)
        return err_set(err,
                       "--receipt needs all answers in one process: leave mpirun out, or use another "
                       "--parallelism than data");
    if (!(r = gen->receipts = mem_zalloc(1, sizeof *r)))
        return err_no_memory(err, "receipts");
    const char *key = gen->options->receipt_key;
    if ((key && receipt_key_read(&r->key, key, true, err) < 0) ||
        receipts_open(&r->receipts, &gen->serve, write_receipt, gen, err) < 0 ||
        outfile_open_private(&r->out, gen->options->receipt, err) < 0)
        return -1;
    r->is_open = true;
    gen->serve.watch = receipts_watch(r->receipts);
    return 0;
}

int gen_end_receipts(struct gen *gen, struct err *err)
{
    if (!gen->receipts)
        return 0;
    gen->receipts->is_open = false;
    return outfile_commit(&gen->receipts->out, err);
}

void gen_close_receipts(struct gen *gen)
{
    struct gen_receipts *r = gen->receipts;
    if (!r)
        return;
    if (r->is_open)
        outfile_abort(&r->out);
    receipts_close(r->receipts);
    sodium_memzero(&r->key, sizeof r->key);
    free(r);
}
