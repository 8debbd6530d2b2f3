/* The operations of template/unpack_entries.h in registers of 256 bits, whose halves each have a group. */
#pragma once

#include <immintrin.h>

#define vbl_both(at) ((vbl)_mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)(at))))
#define vbl_lookup(table, q)                                                                           \
    ((vbl)_mm256_shuffle_epi8(_mm256_loadu_si256((const void *)(table)), (__m256i)(q)))
