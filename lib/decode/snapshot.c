/* Snapshots: saving sequences of a session to a file, and loading them. */
#include "decode/snapshot.h"

#include "base/mem.h"
#include "model/position.h"
#include "quant/cache_types.h"

static struct hash tokenizer_hash(const struct model *model)
{
    return hash_of(model->file.tokenizer, model->file.tokenizer_bytes);
}

/* The number in the file of a layer of the cache: the same, but in files that have layers of the second sizes behind all
 * others. */
static size_t file_layer(const struct kvfile_head *head, const struct kv_shape *shape, size_t layer)
{
    size_t number[2] = {0, (size_t)head->layers};
    bool second = false;
    for (size_t l = 0; l <= layer; l++) {
        const struct kv_sizes *sizes = kv_sizes_of(shape, l);
        second = head->second_layers &&
                 (sizes->kv_heads != head->kv_heads || sizes->head_dim != head->head_dim);
        number[second]++;
    }
    return number[second] - 1;
}

/* The first layer whose sizes are not those of the snapshot; shape->layers: all have them. */
static size_t first_different(const struct kvfile *file, const struct kv_shape *shape)
{
    size_t l = 0;
    for (; l < shape->layers; l++) {
        const size_t index = file_layer(file->head, shape, l);
        const struct kv_sizes *own = kv_sizes_of(shape, l);
        if (index >= kvfile_layers(file->head))
            break;
        const struct kvfile_sizes found = kvfile_sizes_of(file, index);
        if (found.kv_heads != own->kv_heads || found.head_dim != own->head_dim ||
            found.v_dim != own->v_dim)
            break;
    }
    return l;
}

/* Fails unless the snapshot was made with this model. */
static int check_model(const struct snapshot *s, const struct model *model, struct err *err)
{
    const struct kvfile_head *head = s->file.head;
    const struct config *c = &model->config;
    const struct cache_types types = cache_types_alike((enum dtype)head->dtype);
    const struct kv_shape shape = config_kv_shape(c, 1, &types);
    const struct state_shape state = config_state_shape(c);
    const struct hash own = model_entries_id(model, NULL);
    if (hash_equal(&head->model_id, &own) && head->version != KVFILE_VERSION_STATES &&
        (head->version == KVFILE_VERSION_SCALED) != (model->key_gains != NULL))
        return err_set(err,
                       "%s: snapshot version %u has the keys of this model with other scales than this "
                       "program's, which writes version %d; create it again from its text",
                       s->path, head->version, KVFILE_VERSION_SCALED);
    if (hash_equal(&head->model_id, &own)) {
        const size_t l = first_different(&s->file, &shape);
        if (l == shape.layers && kvfile_layers(head) == l && head->state_bytes == state_bytes(&state))
            return 0;
        const struct kv_sizes *sizes = kv_sizes_of(&shape, l < shape.layers ? l : 0);
        if (kvfile_layers(head) == shape.layers && shape.n_sizes > 1 && l < shape.layers) {
            const struct kvfile_sizes has = kvfile_sizes_of(&s->file, file_layer(head, &shape, l));
            return err_set(err,
                           "%s: has %llu KV heads of %llu in layer %zu, its model %s has %zu of %zu: "
                           "the file is damaged",
                           s->path, (unsigned long long)has.kv_heads, (unsigned long long)has.head_dim,
                           l, model->name, sizes->kv_heads, sizes->head_dim);
        }
        return err_set(err,
                       "%s: has %zu layers of %llu heads of %llu, its model %s has %zu of %zu of %zu: "
                       "the file is damaged",
                       s->path, kvfile_layers(head), (unsigned long long)head->kv_heads,
                       (unsigned long long)head->head_dim, model->name, shape.layers, sizes->kv_heads,
                       sizes->head_dim);
    }
    char found[17], want[17];
    const struct hash tokenizer = tokenizer_hash(model);
    hash_hex(&head->model_id, 8, found);
    hash_hex(&own, 8, want);
    return err_set(err,
                   "%s: was made with another model (model_id %s.., %s has %s..%s); load it with the "
                   "model, and with the adapters (--lora), that made it",
                   s->path, found, model->name, want,
                   hash_equal(&tokenizer, &head->tokenizer) ? "" : ", and another tokenizer");
}

/* Notes the types of the cache's layers. */
static int list_types(struct snapshot *s, const struct model *model, struct err *err)
{
    const struct cache_types types = cache_types_alike(DTYPE_F32);
    const struct kv_shape shape = config_kv_shape(&model->config, 1, &types);
    s->types = mem_alloc(shape.layers + 1, sizeof *s->types);
    if (!s->types)
        return err_no_memory(err, "%zu layers", shape.layers);
    for (size_t l = 0; l < shape.layers; l++) {
        const struct kvfile_sizes sizes =
            kvfile_sizes_of(&s->file, file_layer(s->file.head, &shape, l));
        s->types[l] = (struct kv_types){(enum dtype)sizes.type[KV_K], (enum dtype)sizes.type[KV_V]};
    }
    return 0;
}

int snapshot_open(struct snapshot **out, const char *path, const struct model *model, struct err *err)
{
    struct snapshot *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s || !(s->path = strdup(path))) {
        free(s);
        return err_no_memory(err, "a snapshot");
    }
    if (kvfile_open(&s->file, path, err) < 0 || check_model(s, model, err) < 0 ||
        list_types(s, model, err) < 0) {
        snapshot_close(s);
        return -1;
    }
    *out = s;
    return 0;
}

void snapshot_close(struct snapshot *s)
{
    if (!s)
        return;
    kvfile_close(&s->file);
    free(s->types);
    free(s->path);
    free(s);
}

bool snapshot_has_types(const struct snapshot *s, const struct cache_types *types)
{
    bool same = true;
    for (size_t l = 0; l < kvfile_layers(s->file.head); l++)
        same = same && kv_types_equal(s->types[l], cache_types_of(types, l));
    return same;
}

int snapshot_sampling(const struct snapshot *snapshot, size_t index, struct sampler_options *options,
                      struct err *err)
{
    return kvfile_sampling(&snapshot->file, index, options, snapshot->path, err);
}

size_t snapshot_find(const struct snapshot *s, const char *id, size_t len)
{
    for (size_t i = 0; i < s->file.n_seqs; i++)
        if (s->file.seq[i].id_bytes == len && memcmp(s->file.text + s->file.seq[i].id, id, len) == 0)
            return i;
    return SIZE_MAX;
}

size_t snapshot_common(const struct snapshot *snapshot, size_t index, const uint32_t *id, size_t n)
{
    const uint32_t *token = snapshot_tokens(snapshot, index);
    const size_t most = size_min(n, (size_t)snapshot_seq(snapshot, index)->n_tokens);
    size_t i = 0;
    while (i < most && token[i] == id[i])
        i++;
    return i;
}

bool snapshot_fits(const struct session *session, const struct snapshot *snapshot)
{
    const size_t stored = snapshot ? (size_t)snapshot->file.head->context : 0;
    return !rope_depends(session_model(session)->config.rope,
                         size_max(stored, session_options(session)->context));
}

static int check_fits(const struct session *session, const struct snapshot *snapshot, const char *path,
                      struct err *err)
{
    const size_t most = session_model(session)->config.rope->original;
    return snapshot_fits(session, snapshot)
               ? 0
               : err_set(err,
                         "%s: beyond %zu tokens this model's rotary frequencies depend on the sequence "
                         "length: "
                         "save and load with -c %zu, or compute the prompt again",
                         path, most, most);
}

int snapshot_check_scales(const struct snapshot *snapshot, const struct cache_types *types,
                          const struct hash *scales, struct err *err)
{
    const struct cache_types_text type = cache_types_format(types);
    const struct hash *found = &snapshot->file.head->scales, none = {0};
    char text[17];
    if (!snapshot_has_types(snapshot, types) || hash_equal(found, scales))
        return 0;
    hash_hex(found, 8, text);
    return hash_equal(found, &none)
               ? err_set(
                     err,
                     "%s: each of its KV entries has a scale of its own, this cache has shared scales: "
                     "load it with --cache-type %s, or compute the text again",
                     snapshot->path, type.text)
               : err_set(
                     err,
                     "%s: its KV entries have other shared scales (%s..) than this cache: load it with "
                     "--cache-type %s:scales=FILE and the file that made it, or compute the text again",
                     snapshot->path, text, type.text);
}

size_t snapshot_tokens_of_rows(const struct session *session, const struct snapshot *snapshot,
                               size_t index, size_t tokens)
{
    const struct kvfile_seq *seq = snapshot_seq(snapshot, index);
    const size_t first = (size_t)seq->first, wanted = tokens - size_min(tokens, first);
    const size_t rows =
        kv_attachable(session_kv(session), first, size_min(wanted, (size_t)seq->n_rows));
    const size_t loaded = rows && rows >= seq->least ? first + rows : 0;
    if (!snapshot->file.head->state_bytes)
        return loaded;
    size_t best = 0; /* the last state that is not behind them */
    for (size_t i = 0; i < kvfile_states(&snapshot->file, index); i++)
        if (kvfile_state_at(&snapshot->file, index, i) <= loaded)
            best = kvfile_state_at(&snapshot->file, index, i);
    return best > first ? best : 0;
}

/* Loads the state of a sequence of the snapshot after `tokens` tokens, and those before that the session may keep. */
static int load_states(struct session *session, size_t seq, const struct kvfile *file, size_t index,
                       size_t tokens, struct err *err)
{
    const bool all = session_options(session)->kept_states > 0;
    int rc = 0;
    for (size_t i = 0; i < kvfile_states(file, index) && rc == 0; i++) {
        const size_t at = kvfile_state_at(file, index, i);
        if (at && (all ? at <= tokens : at == tokens))
            rc = kv_state_load(session_kv(session), seq, at, kvfile_state(file, index, i), err);
    }
    return rc;
}

int snapshot_load(struct session *session, size_t seq, const struct snapshot *snapshot, size_t index,
                  size_t tokens, struct err *err)
{
    const struct kvfile *file = &snapshot->file;
    const size_t layers = kvfile_layers(file->head), first = (size_t)file->seq[index].first;
    const size_t rows = tokens - first;
    struct kvfile_rows mapped = {0};
    struct device_addr at = {0};
    assert(rows && rows <= file->seq[index].n_rows);
    const struct kv_setup *kv = kv_setup(session_kv(session));
    if (check_fits(session, snapshot, snapshot->path, err) < 0 ||
        snapshot_check_scales(snapshot, &session_options(session)->kv_types, &kv->scales, err) < 0)
        return -1;
    AUTO(free_auto) struct kv_layer_rows *layer = mem_alloc(layers + 1, sizeof *layer);
    if (!layer)
        return err_no_memory(err, "%zu layers", layers);
    int rc = layers ? kvfile_map_rows(file, index, &mapped, snapshot->path, err) : 0;
    if (rc == 0 && layers) {
        at = kv->memory->adopt(mapped.data, mapped.bytes);
        if (addr_is_null(at))
            rc = err_no_memory(err, "%zu bytes of KV entries", mapped.bytes);
    }
    for (size_t l = 0; l < layers && rc == 0; l++) {
        const size_t from = file_layer(file->head, &kv->shape, l);
        layer[l].k = addr_add(at, kvfile_block_of(file, index, from, false)->offset - mapped.offset);
        layer[l].v = addr_add(at, kvfile_block_of(file, index, from, true)->offset - mapped.offset);
        layer[l].types = snapshot->types[l];
    }
    if (rc == 0)
        rc = kv_attach(session_kv(session), seq, layer, first, rows, (size_t)file->seq[index].cap, err);
    if (layers)
        session_hold_mapping(session, seq, mapped, at);
    if (rc == 0 && file->head->state_bytes &&
        (rc = load_states(session, seq, file, index, tokens, err)) < 0)
        session_clear(session, seq);
    return rc < 0 ? err_prefix(err, "%s", snapshot->path) : 0;
}

struct kvfile_sizes *snapshot_sizes(const struct kv_shape *shape)
{
    struct kvfile_sizes *list = mem_zalloc(shape->layers + 1, sizeof *list);
    for (size_t l = 0; list && l < shape->layers; l++) {
        const struct kv_sizes *sizes = kv_sizes_of(shape, l);
        list[l] = (struct kvfile_sizes){
            sizes->kv_heads, sizes->head_dim, sizes->v_dim, {sizes->type[KV_K], sizes->type[KV_V]}};
    }
    return list;
}

int snapshot_create(struct kvwriter **writer, const char *path, const struct session *session,
                    struct err *err)
{
    const struct kv_setup *kv = kv_setup(session_kv(session));
    struct kvfile_head about = {
        .version = session_model(session)->key_gains ? KVFILE_VERSION_SCALED : 0,
        .context = kv->shape.max_rows,
        .model_id = model_entries_id(session_model(session), NULL),
        .tokenizer = tokenizer_hash(session_model(session)),
        .layout = LAYOUT_ROWS,
        .layers = kv->shape.layers,
        .state_bytes = kv_state_bytes(session_kv(session)),
        .scales = kv->scales,
    };
    if (check_fits(session, NULL, path, err) < 0)
        return -1;
    kv_spec_format(session_kv(session), about.policy, sizeof about.policy);
    snprintf(about.isa, sizeof about.isa, "%s", session_options(session)->cpu.kernels->isa);
    snprintf(about.precision, sizeof about.precision, "%s",
             precision_name(session_options(session)->cpu.precision));
    AUTO(free_auto) struct kvfile_sizes *sizes = snapshot_sizes(&kv->shape);
    return sizes ? kvwriter_open(writer, path, &about, sizes, err)
                 : err_no_memory(err, "%zu layers", kv->shape.layers);
}

/* The argument of read_rows() and read_state(): the cache sequence to read from. */
struct snapshot_reader {
    struct kv *kv;
    size_t seq;
};

static int read_rows(void *arg, size_t layer, bool v, size_t head, void *rows, struct err *err)
{
    const struct snapshot_reader *reading = arg;
    return kv_read(reading->kv, reading->seq, layer, v, head, rows, err);
}

static void read_state(void *arg, size_t tokens, void *state)
{
    const struct snapshot_reader *reading = arg;
    kv_state_read(reading->kv, reading->seq, tokens, state);
}

/* Number of KV entries to reserve for a sequence in the file: at least one more than it has, so
 * that the first token after loading needs no reallocation; at most a quarter more; whole tiles. */
static size_t choose_cap(const struct kv *kv, size_t seq)
{
    const size_t n = kv_seq_info(kv, seq).n;
    return round_up(size_max(n + 1, size_min(kv_storage_rows(kv, seq), n + n / 4)), TILE_ROWS);
}

int snapshot_add(struct kvwriter *writer, struct session *session, size_t seq,
                 const struct saved_seq *saved, struct err *err)
{
    const struct kv_seq_info rows = kv_seq_info(session_kv(session), seq);
    const struct sampler_options *o = saved->sampling;
    const size_t most = session_model(session)->config.rope->original;
    if (session_scaled(session, seq))
        return err_set(
            err,
            "a sequence of more than %zu tokens is not saved: beyond them this model's rotary "
            "frequencies depend on its length; generate fewer, or save earlier",
            most);
    if (kv_setup(session_kv(session))->sinks && !kv_is_untrimmed(session_kv(session), seq))
        return err_set(err,
                       "a sequence of %zu tokens is not saved: the rolling cache of %zu entries behind "
                       "%zu attention sinks has dropped some; raise S, or leave out sinks",
                       kv_position(session_kv(session), seq), kv_setup(session_kv(session))->window,
                       kv_setup(session_kv(session))->sinks);
    struct snapshot_reader reading = {session_kv(session), seq};
    const size_t n_states = kv_state_positions(session_kv(session), seq, NULL);
    AUTO(free_auto) size_t *state_at = mem_alloc(n_states + 1, sizeof *state_at);
    if (!state_at)
        return err_no_memory(err, "%zu recurrent states", n_states);
    kv_state_positions(session_kv(session), seq, state_at);
    assert(rows.n && rows.first + rows.n <= saved->n_tokens);
    struct kvwriter_seq out = {
        .entry =
            {
                .n_tokens = saved->n_tokens,
                .n_rows = rows.n,
                .cap = choose_cap(session_kv(session), seq),
                .n_prompt = saved->n_prompt,
                .first = rows.first,
                .least = kv_is_untrimmed(session_kv(session), seq) ? 0 : rows.n,
                .seed = saved->seed,
                .stream = saved->stream,
                .temp = o->temp,
                .top_p = o->top_p,
                .min_p = o->min_p,
                .repeat_penalty = o->repeat_penalty,
                .presence_penalty = o->presence_penalty,
                .frequency_penalty = o->frequency_penalty,
                .top_k = o->top_k,
                .repeat_last_n = o->repeat_last_n,
                .n_states = n_states,
            },
        .state_at = state_at,
        .token = saved->token,
        .id = saved->id,
        .read = read_rows,
        .read_state = read_state,
        .arg = &reading,
    };
    AUTO(buf_release) struct buf settings = {0};
    AUTO(json_auto) json_t *object = sampling_pack(o, err);
    out.settings = &settings;
    if (!object || json_append(object, JSON_COMPACT | JSON_REAL_PRECISION(17), &settings, err) < 0)
        return -1;
    return kvwriter_add(writer, &out, err);
}

int snapshot_save(const char *path, struct session *session, size_t seq, const struct saved_seq *saved,
                  struct err *err)
{
    struct kvwriter *writer;
    if (snapshot_create(&writer, path, session, err) < 0)
        return -1;
    if (snapshot_add(writer, session, seq, saved, err) < 0) {
        kvwriter_abort(writer);
        return -1;
    }
    return kvwriter_commit(writer, err);
}
