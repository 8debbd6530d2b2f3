/* bmc-gen --verify-receipt: verifies a file of receipts. */
#include "base/file.h"
#include "gen/gen.h"
#include "serve/receipt.h"

static int adopt_first(struct gen_options *o, struct receipt_settings *settings, struct err *err)
{
    struct file_map map;
    const char *scales;
    if (file_map(&map, o->verify_receipt, err) < 0)
        return -1;
    int rc = map.size ? receipt_first(settings, (const char *)map.data, map.size, err)
                      : err_set(err, "the file is empty, a receipt is expected");
    file_unmap(&map);
    if (rc == 0)
        rc = cache_types_parse(&o->kv_types, settings->cache_type, &scales, err);
    if (rc == 0 && scales)
        rc = err_set(err, "no receipt has shared scales");
    o->precision = settings->precision;
    o->cache_type = settings->cache_type;
    o->context = (int64_t)settings->context;
    return rc < 0 ? err_prefix(err, "%s:1", o->verify_receipt) : 0;
}

void gen_adopt_receipt(const struct program *program, struct gen_options *o)
{
    static struct receipt_settings settings;
    struct err err;
    if (o->verify_receipt && adopt_first(o, &settings, &err) < 0)
        exit(cli_fail(program->name, &err));
}

static int print_verdict(void *arg, uint64_t number, bool equal, const char *sentence, struct err *err)
{
    struct gen *gen = arg;
    AUTO(buf_release) struct buf line = {0};
    gen->n_requests++;
    gen->n_failed += !equal;
    if (buf_addf(&line, err, "%s:%llu: %s\n", gen->options->verify_receipt,
                 (unsigned long long)number + 1, sentence) < 0)
        return -1;
    text_make_printable(line.data, line.len, "\n");
    return gen_put_line(&line, err);
}

static int verify_text(struct gen *gen, const struct file_map *map, struct err *err)
{
    const struct gen_options *o = gen->options;
    struct receipt_key key;
    struct gen_stats stats;
    if ((size_t)o->context > gen->model->config.context)
        return err_set(err, "%s: was made with a context of %zu tokens, this model has %zu",
                       o->verify_receipt, (size_t)o->context, gen->model->config.context);
    if ((o->receipt_key && receipt_key_read(&key, o->receipt_key, false, err) < 0) ||
        gen_open_session(gen, o->batch ? o->batch : JSONL_BATCH, 0, err) < 0 ||
        receipts_verify(&gen->serve, (const char *)map->data, map->size, o->receipt_key ? &key : NULL,
                        print_verdict, gen, &stats, err) < 0 ||
        gen_report(gen, &stats, err) < 0)
        return -1;
    return gen_verdict(gen, "receipts", err);
}

int gen_verify_receipts(struct gen *gen, struct err *err)
{
    struct file_map map;
    if (file_map(&map, gen->options->verify_receipt, err) < 0)
        return -1;
    const int rc = verify_text(gen, &map, err);
    file_unmap(&map);
    return rc;
}
