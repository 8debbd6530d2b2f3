/* The memory of a store of experts, and where their weights are in the model file. */
#pragma once

#include "base/async_file.h"
#include "model/experts/expert_store.h"

#define NO_SLOT SIZE_MAX

/* The experts of a layer; of a layer without experts, zeros. */
struct expert_layer {
    size_t offset[EXPERT_MATRICES]; /* of the first expert's matrix in the file */
    size_t size[EXPERT_MATRICES];   /* bytes of a matrix */
    size_t at[EXPERT_MATRICES];     /* of a matrix's blocks in a slot */
    size_t bytes;                   /* of the blocks of an expert */
    size_t keeps;                   /* experts that stay in memory between passes */
    size_t held;                    /* experts in memory or being read */
    size_t *slot;                   /* [experts] index of the slot or NO_SLOT */
    uint64_t *count;                /* [experts] tokens that chose it */
    uint64_t *last;                 /* [experts] the last pass that needed it */
    size_t tokens;                  /* since counts were halved */
};

struct expert_slot {
    struct async_ticket ticket; /* bytes 0: nothing is being read */
    bool prefetched;            /* and not needed yet */
};

struct expert_store {
    char *path;
    struct async_file *file;
    const struct backend_memory *memory;
    struct device_addr slots; /* [n_slots][slot_bytes] */
    size_t slot_bytes, n_slots;
    struct expert_slot *slot; /* [n_slots] */
    size_t *spare;            /* [n_spare] empty slots */
    size_t n_spare;
    size_t moving; /* slots that no layer keeps */
    size_t experts, first_layer, n_layers;
    struct expert_layer *layer; /* [n_layers] */
    size_t *slots_of;           /* [n_layers][experts] */
    uint64_t *counts;           /* [n_layers][2][experts] */
    struct expert_stats stats;
    uint64_t clock; /* passes of layers */
    /* the pass of a layer */
    struct expert_layer *current;    /* NULL: none */
    const struct expert_layer *last; /* the layer before it */
    const size_t *expert;            /* [n] experts that it needs */
    size_t n, n_done, next_read;     /* of them, returned; the first that may have to be read */
    unsigned char *demand;           /* [experts] enum demand */
    size_t pass_bytes;               /* read on demand */
    double begun_ms, arrived_ms;     /* when it began; when its last expert was there */
    /* prefetching */
    bool no_prefetch, reads_predicted;
    struct expert_layer *prefetching; /* layer that experts were prefetched for; NULL: none */
    bool *predicted;                  /* [experts] for that layer */
    size_t pending_predictions;       /* number of them */
    size_t right, n_predicted;        /* measured precision */
    double rate, gap_ms;              /* bytes per ms; time from the last arrival to the next layer */
    double credit;                    /* bytes that wrong predictions may waste: the file was idle */
};

/* Bytes [from, from + bytes) of the file hold a matrix, which begins `skip` bytes behind `from`. */
struct expert_range {
    size_t from, bytes, skip;
};

static inline struct expert_range expert_slots_range(const struct expert_layer *layer, size_t matrix,
                                                     size_t expert)
{
    const size_t begin = layer->offset[matrix] + expert * layer->size[matrix];
    const size_t from = begin / ASYNC_BLOCK * ASYNC_BLOCK;
    return (struct expert_range){from, round_up(begin + layer->size[matrix], ASYNC_BLOCK) - from,
                                 begin - from};
}

static inline struct device_addr expert_slots_at(const struct expert_store *store, size_t slot)
{
    return addr_add(store->slots, slot * store->slot_bytes);
}
