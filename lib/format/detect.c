/* Detecting the kind of a file by its content. */
#include "format/detect.h"

#include "base/file.h"
#include "base/file_head.h"
#include "base/text_util.h"
#include "format/bmc/bmclayout.h"
#include "format/imatrix.h"
#include "format/kvfile/kvfile.h"
#include "format/logits_file.h"
#include "report/svg.h"

enum { ST_HEAD = 8, ST_MAX_HEADER = 100 << 20, FIRST_BYTES = 1024 };

struct bytes {
    const char *data;
    size_t size;
};

static bool starts(struct bytes b, const char *text)
{
    const size_t len = strlen(text);
    return b.size >= len && memcmp(b.data, text, len) == 0;
}

/* True if one of the first lines begins with `key`. */
static bool has_line(struct bytes b, const char *key)
{
    const char *at = b.data, *end = at + size_min(b.size, FIRST_BYTES);
    while (at && at < end) {
        if (starts((struct bytes){at, (size_t)(end - at)}, key))
            return true;
        at = memchr(at, '\n', (size_t)(end - at));
        at = at ? at + 1 : NULL;
    }
    return false;
}

/* Tuned profiles and files of acceptance rates are text: lines of "key value". */
static bool is_profile(struct bytes b) { return has_line(b, "bmc_profile "); }
static bool is_acceptance(struct bytes b) { return starts(b, "target ") && has_line(b, "draft "); }

/* True if the bytes begin as safetensors do: u64 length of a JSON header, then the header. */
static bool is_safetensors(struct bytes b)
{
    uint64_t header;
    if (b.size <= ST_HEAD || b.data[ST_HEAD] != '{')
        return false;
    memcpy(&header, b.data, sizeof header);
    return header >= 2 && header <= ST_MAX_HEADER;
}

/* Statistics are a line of JSON, whose first members are these. */
static bool is_stats(struct bytes b)
{
    return starts(b, "{\"version\":\"") && memmem(b.data, b.size, "\"model_id\":\"", 12) &&
           memmem(b.data, b.size, "\"kv_policy\":", 12);
}

static bool is_chart(struct bytes b)
{
    return starts(b, "<?xml ") && memmem(b.data, b.size, SVG_FONT, strlen(SVG_FONT));
}

static bool has_no_bytes(struct bytes b)
{
    (void)b;
    return false;
}

static const struct kind {
    const char *name;  /* for messages such as "is a NAME" */
    const char *begin; /* magic bytes at the start of the file; NULL: is() decides */
    bool (*is)(struct bytes b);
    /* description with article, and what to do with such a file; NULL: never refused */
    const char *description, *advice,
        *for_source; /* advice where input of bmc-convert is expected; NULL: `advice` */
} kinds[FILE_KINDS] = {
    [KIND_OTHER] = {"file", NULL, NULL, NULL, NULL, NULL},
    [KIND_MODEL] = {"model file", BMC_MAGIC, NULL, "a .bmc model", "give the model with -m",
                    "it is already converted: use it with -m"},
    [KIND_SNAPSHOT] = {"snapshot", KVFILE_MAGIC, NULL, "a snapshot",
                       "load it with --load-kv, together with its model (-m)", NULL},
    [KIND_PROFILE] = {"tuned profile", NULL, is_profile, NULL, NULL, NULL},
    [KIND_ACCEPTANCE] = {"file of acceptance rates", NULL, is_acceptance, NULL, NULL, NULL},
    [KIND_IMATRIX] = {"file with an importance matrix", IMATRIX_MAGIC, NULL, "an importance matrix",
                      "pass it to bmc-convert with --imatrix", NULL},
    [KIND_SAFETENSORS] = {"safetensors file", NULL, is_safetensors, NULL, NULL, NULL},
    [KIND_GGUF] = {"GGUF file", "GGUF", NULL, "a GGUF file", "convert it with bmc-convert",
                   "pass the file itself to bmc-convert"},
    [KIND_ZIP] = {"PyTorch checkpoint", "PK\3\4", NULL, "a PyTorch checkpoint",
                  "pass its folder, with config.json, to bmc-convert", NULL},
    [KIND_LFS] = {"Git LFS pointer", "version https://git-lfs.github.com/spec/", NULL,
                  "a Git LFS pointer, not the file itself", "run \"git lfs pull\" in its folder", NULL},
    [KIND_STATS] = {"file of statistics", NULL, is_stats, NULL, NULL, NULL},
    [KIND_CHART] = {"chart of these programs", NULL, is_chart, NULL, NULL, NULL},
    [KIND_HEADS] = {"list of retrieval heads", HEADS_BEGIN, NULL, NULL, NULL, NULL},
    [KIND_RANGES] = {"file of ranges", RANGES_BEGIN, NULL, NULL, NULL, NULL},
    [KIND_SENSITIVITY] = {"file of cache types", SENSITIVITY_BEGIN, NULL, NULL, NULL, NULL},
    [KIND_LOGITS] = {"file of saved logits", LOGITS_MAGIC, NULL, "a file of saved logits",
                     "compare with it by bmc-prof quality --reference", NULL},
    [KIND_RECEIPT] = {"file of receipts", RECEIPT_BEGIN, NULL, "a file of receipts",
                      "verify it with bmc-gen --verify-receipt", NULL},
    [KIND_PRESSURE] = {"log of memory pressure", PRESSURE_BEGIN, NULL, "a log of memory pressure",
                       "repeat it with --kv-pressure-replay", NULL},
    [KIND_FOLDER] = {"folder", NULL, has_no_bytes, NULL, NULL, NULL},
};

enum file_kind file_format(const void *data, size_t size)
{
    const struct bytes b = {data, size};
    int kind = size ? FILE_KINDS - 1 : KIND_OTHER;
    while (kind > KIND_OTHER && !(kinds[kind].begin ? starts(b, kinds[kind].begin) : kinds[kind].is(b)))
        kind--;
    return (enum file_kind)kind;
}

enum file_kind file_detect(const char *path)
{
    char head[FIRST_BYTES];
    return file_format(head, file_head(path, head, sizeof head));
}

enum file_kind path_detect(const char *path)
{
    return file_is_folder(path) ? KIND_FOLDER : file_detect(path);
}

const char *file_kind_name(enum file_kind kind) { return kinds[kind].name; }

int detect_refuse(const void *data, size_t size, enum file_kind good, const char *wanted,
                  const char *name, struct err *err)
{
    const enum file_kind found = file_format(data, size);
    const struct kind *kind = &kinds[found];
    if (!kind->description || found == good)
        return 0;
    if (good == KIND_IMATRIX)
        return err_set(err, "%s: is %s, expected %s: bmc-gen --save-imatrix writes one", name,
                       kind->description, wanted);
    return err_set(err, "%s: is %s, expected %s: %s", name, kind->description, wanted,
                   good == KIND_OTHER && kind->for_source ? kind->for_source : kind->advice);
}

/* True for "organization/name" or "name", unless it ends in .bmc or .gguf. */
static bool like_hub_name(const char *path)
{
    const char *slash = strchr(path, '/');
    if (text_ends(path, ".bmc") || text_ends(path, ".gguf"))
        return false;
    return *path && *path != '.' && slash != path && (!slash || (slash[1] && !strchr(slash + 1, '/')));
}

int detect_hub_name(const char *path, const char *description, const char *advice, struct err *err)
{
    const char *name = strncmp(path, "hf:", 3) == 0 ? path + 3 : path;
    if (file_exists(path))
        return 0;
    if (strstr(path, "://"))
        return err_set(err, "%s: models are not downloaded: download it, and %s", path, advice);
    if (!like_hub_name(name))
        return 0;
    return err_set(err,
                   "%s: no such %s; models are not downloaded: if it is on the Hugging Face hub, "
                   "download it (git clone https://huggingface.co/%s, with Git LFS) and %s",
                   path, description, name, advice);
}

/* ---- the table of unsupported architectures ---- */

/* Prefixes of architecture names in config.json and GGUF, each with a blank before it; the first
 * match wins. */
static const struct {
    const char *description, *begin;
} unsupported[] = {
    {"an encoder of a kind, or for a task, that is not supported",
     " Bert Roberta XLMRoberta DistilBert Albert Electra Deberta MPNet ModernBert NomicBert T5Encoder"
     " modern-bert jina-bert roberta t5encoder"},
    {"an encoder-decoder model; only decoder-only models are supported",
     " T5 MT5 UMT5 Bart MBart Marian Pegasus M2M100 t5"},
    {"a recurrent model of a kind that is not supported", " Mamba FalconMamba Rwkv RWKV mamba rwkv"},
    {"a mixture of experts, which is not supported", " GraniteMoeSWA Dbrx Jamba dbrx jamba"},
    {"an image or audio model, which is not supported", " Whisper CLIP Llava ViT clip wavtokenizer"},
};

const char *unsupported_arch(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(unsupported); i++)
        for (const char *at = unsupported[i].begin; *at; at += strcspn(at, " ")) {
            at++;
            if (strncmp(name, at, strcspn(at, " ")) == 0)
                return unsupported[i].description;
        }
    return NULL;
}
