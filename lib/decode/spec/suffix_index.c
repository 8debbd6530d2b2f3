/* The index of suffix decoding: a ring of blocks with hash chains. */
#include "decode/spec/suffix_index.h"

#include "base/mem.h"

enum { BLOCK = 32, MIN_BLOCKS = 2 };

/* Lengths of the n-grams that have hash chains, longest first. */
static const size_t grams[] = {8, 4, SUFFIX_MIN};

enum { GRAMS = sizeof grams / sizeof *grams };

/* Blocks are numbered from 1 in order of allocation; block i is stored at i % n_blocks until it is
 * overwritten by a later one. A position is number * BLOCK + offset, 0 is none. */
struct block {
    uint32_t number;
    uint32_t prev, next; /* numbers of the sequence's neighbouring blocks; 0: none */
    uint32_t sequence;   /* id */
    uint32_t used;       /* tokens */
};

struct suffix_index {
    struct block *block; /* [n_blocks] */
    uint32_t *token;     /* [n_blocks][BLOCK] */
    /* Of a position, the one before it in its hash chain; of a hash, the newest position. */
    uint32_t *link[GRAMS]; /* [n_blocks][BLOCK] */
    uint32_t *head[GRAMS]; /* [1 << bits] */
    uint32_t n_blocks;
    unsigned bits;
    uint32_t n_numbers, n_sequences; /* numbers and ids given so far */
};

static struct block *block_at(const struct suffix_index *index, uint32_t at)
{
    return &index->block[at / BLOCK % index->n_blocks];
}

static size_t cell_of(const struct suffix_index *index, uint32_t at)
{
    return (size_t)(at / BLOCK % index->n_blocks) * BLOCK + at % BLOCK;
}

/* False for positions that were overwritten, and for 0. */
static bool is_valid(const struct suffix_index *index, uint32_t at)
{
    const struct block *block = block_at(index, at);
    return block->number == at / BLOCK && at % BLOCK < block->used;
}

static size_t hash_of_gram(const struct suffix_index *index, const uint32_t *token, size_t n)
{
    uint64_t h = n;
    for (size_t i = 0; i < n; i++)
        h = (h ^ token[i]) * 0x9e3779b97f4a7c15u;
    return (size_t)(h >> (64 - index->bits));
}

static void forget_all(struct suffix_index *index)
{
    memset(index->block, 0, index->n_blocks * sizeof *index->block);
    for (size_t g = 0; g < GRAMS; g++)
        memset(index->head[g], 0, ((size_t)1 << index->bits) * sizeof *index->head[g]);
    index->n_numbers = 0;
}

int suffix_index_open(struct suffix_index **out, size_t capacity, struct err *err)
{
    struct suffix_index *index = mem_zalloc(1, sizeof *index);
    *out = NULL;
    if (!index)
        return err_no_memory(err, "an index of suffixes");
    index->n_blocks = (uint32_t)size_max(div_up(capacity, BLOCK), MIN_BLOCKS);
    index->bits = 8;
    const size_t cells = (size_t)index->n_blocks * BLOCK;
    while ((size_t)2 << index->bits <= cells)
        index->bits++;
    index->block = mem_zalloc(index->n_blocks, sizeof *index->block);
    index->token = mem_alloc(cells, sizeof *index->token);
    bool ok = index->block && index->token;
    for (size_t g = 0; g < GRAMS; g++) {
        index->link[g] = mem_alloc(cells, sizeof *index->link[g]);
        index->head[g] = mem_zalloc((size_t)1 << index->bits, sizeof *index->head[g]);
        ok = ok && index->link[g] && index->head[g];
    }
    if (!ok) {
        suffix_index_close(index);
        return err_no_memory(err, "a suffix index of %zu tokens", capacity);
    }
    *out = index;
    return 0;
}

void suffix_index_close(struct suffix_index *index)
{
    if (!index)
        return;
    for (size_t g = 0; g < GRAMS; g++) {
        free(index->link[g]);
        free(index->head[g]);
    }
    free(index->block);
    free(index->token);
    free(index);
}

/* Begins a block of the sequence, over the oldest one. Returns its first position. */
static uint32_t begin_block(struct suffix_index *index, struct suffix_sequence *sequence)
{
    if (index->n_numbers == UINT32_MAX / BLOCK - 1)
        forget_all(index);
    const uint32_t number = ++index->n_numbers, at = number * BLOCK;
    struct block *block = block_at(index, at);
    *block = (struct block){.number = number, .sequence = sequence->id};
    if (is_valid(index, sequence->last)) {
        block->prev = sequence->last / BLOCK;
        block_at(index, sequence->last)->next = number;
    }
    return at;
}

/* Adds the sequence's newest position to the hash chains. */
static void add_to_chains(struct suffix_index *index, const struct suffix_sequence *sequence)
{
    for (size_t g = 0; g < GRAMS; g++) {
        if (sequence->n < grams[g])
            continue;
        uint32_t *head =
            &index->head[g][hash_of_gram(index, sequence->tail + SUFFIX_DEPTH - grams[g], grams[g])];
        index->link[g][cell_of(index, sequence->last)] = *head;
        *head = sequence->last;
    }
}

/* A position enters the chains when another token follows it: all that is found has a next token. */
static void add_token(struct suffix_index *index, struct suffix_sequence *sequence, uint32_t token)
{
    const bool in_block =
        is_valid(index, sequence->last) && block_at(index, sequence->last)->used < BLOCK;
    const uint32_t at = in_block ? sequence->last + 1 : begin_block(index, sequence);
    index->token[cell_of(index, at)] = token;
    block_at(index, at)->used++;
    if (is_valid(index, sequence->last))
        add_to_chains(index, sequence);
    memmove(sequence->tail, sequence->tail + 1, (SUFFIX_DEPTH - 1) * sizeof *sequence->tail);
    sequence->tail[SUFFIX_DEPTH - 1] = token;
    sequence->last = at;
    sequence->n++;
}

void suffix_index_follow(struct suffix_index *index, struct suffix_sequence *sequence,
                         const uint32_t *ids, size_t n)
{
    const size_t known = size_min(sequence->n, SUFFIX_DEPTH);
    if (n < sequence->n || (known && memcmp(sequence->tail + SUFFIX_DEPTH - known,
                                            ids + sequence->n - known, known * sizeof *ids) != 0))
        *sequence = (struct suffix_sequence){0};
    if (sequence->n == 0) {
        index->n_sequences += index->n_sequences == UINT32_MAX ? 2 : 1;
        sequence->id = index->n_sequences;
    }
    while (sequence->n < n)
        add_token(index, sequence, ids[sequence->n]);
}

/* The number of last tokens of ids[0..n), up to SUFFIX_DEPTH, that end at a position. */
static size_t match_length(const struct suffix_index *index, uint32_t at, const uint32_t *ids, size_t n)
{
    const size_t max = size_min(n, SUFFIX_DEPTH);
    size_t length = 0;
    while (length < max && is_valid(index, at) &&
           index->token[cell_of(index, at)] == ids[n - 1 - length]) {
        length++;
        at = at % BLOCK ? at - 1 : block_at(index, at)->prev * BLOCK + BLOCK - 1;
    }
    return length;
}

size_t suffix_index_find(const struct suffix_index *index, const uint32_t *ids, size_t n,
                         struct suffix_occurrence found[SUFFIX_OCCURRENCES])
{
    size_t n_found = 0, below = SIZE_MAX; /* matches of this length were found already */
    for (size_t g = 0; g < GRAMS; below = grams[g++]) {
        if (n < grams[g])
            continue;
        uint32_t at = index->head[g][hash_of_gram(index, ids + n - grams[g], grams[g])];
        for (size_t step = 0; step < SUFFIX_OCCURRENCES && n_found < SUFFIX_OCCURRENCES; step++) {
            if (!is_valid(index, at))
                break;
            const size_t length = match_length(index, at, ids, n);
            if (length >= grams[g] && length < below)
                found[n_found++] = (struct suffix_occurrence){
                    .at = at, .sequence = block_at(index, at)->sequence, .length = length};
            at = index->link[g][cell_of(index, at)];
        }
    }
    return n_found;
}

bool suffix_index_next(const struct suffix_index *index, uint32_t *at, uint32_t *token)
{
    if (!is_valid(index, *at))
        return false;
    const uint32_t next = *at % BLOCK < BLOCK - 1 ? *at + 1 : block_at(index, *at)->next * BLOCK;
    if (!is_valid(index, next))
        return false;
    *at = next;
    *token = index->token[cell_of(index, next)];
    return true;
}
