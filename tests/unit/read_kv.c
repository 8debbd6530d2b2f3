/* A second reader of snapshots, written from bmc-kv(5) alone: it shares no code with the library.
 *
 *   read_kv FILE            checks all that the page specifies, and prints a line per sequence:
 *                           rows, tokens, cap, seed, stream, temperature, name, ids
 *   read_kv FILE SEQUENCE   prints its KV entries as f32, one per line: layer, K or V, head,
 *                           position, values
 *
 * Exits with 1 and one line that says what is wrong. */
#include <math.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Data types of KV entries. */
enum { F32 = 0, BF16 = 1, F16 = 2, Q8_CHANNEL = 4, Q4_1 = 5, Q4H = 128, Q8, Q6, Q5, Q4 };

enum { PAGE = 4096, SEQ_BYTES = 192, BLOCK_BYTES = 64, SECTIONS = 4, PIECE = 65536 };

static unsigned char *data;
static uint64_t size;

__attribute__((format(printf, 1, 2), noreturn)) static void wrong(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    exit(1);
}

static uint64_t number(uint64_t at, int bytes)
{
    uint64_t n = 0;
    if (at + (uint64_t)bytes > size)
        wrong("byte %llu is beyond the end", (unsigned long long)at);
    for (int i = bytes; i-- > 0;)
        n = n << 8 | data[at + (uint64_t)i];
    return n;
}

static uint64_t u64(uint64_t at) { return number(at, 8); }
static uint32_t u32(uint64_t at) { return (uint32_t)number(at, 4); }

static double f64(uint64_t at)
{
    const uint64_t bits = u64(at);
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void zeros(uint64_t from, uint64_t to)
{
    for (uint64_t at = from; at < to; at++)
        if (number(at, 1))
            wrong("byte %llu is not zero", (unsigned long long)at);
}

/* Checks for a name in lower case letters and digits, followed by zeros. */
static void name(uint64_t from, uint64_t to)
{
    uint64_t at = from;
    while (at < to && strchr("abcdefghijklmnopqrstuvwxyz0123456789", (int)number(at, 1)) &&
           number(at, 1))
        at++;
    if (at == from || at == to)
        wrong("no name at %llu", (unsigned long long)from);
    zeros(at, to);
}

static void read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) < 0)
        wrong("%s: cannot open", path);
    size = (uint64_t)ftell(file);
    data = malloc(size + 1);
    rewind(file);
    if (!data || fread(data, 1, size, file) != size)
        wrong("%s: cannot read", path);
    fclose(file);
}

/* Compares a hash with the 32 bytes at offset `want`. */
static void same(const char *what, const unsigned char *hash, uint64_t want)
{
    number(want, 8);
    if (memcmp(hash, data + want, 32) != 0)
        wrong("the hash of %s is wrong", what);
}

/* Compares the BLAKE2b-256 hash of bytes with the one at offset `want`. */
static void same_hash(const char *what, const void *bytes, uint64_t n, uint64_t want)
{
    unsigned char hash[32];
    crypto_generichash(hash, sizeof hash, bytes, n, NULL, 0);
    same(what, hash, want);
}

/* The same for a block: if it is longer than PIECE, its hash is BLAKE2b-256 of the hashes of its
 * pieces. */
static void same_pieces(uint64_t at, uint64_t n, uint64_t want)
{
    crypto_generichash_state whole;
    unsigned char hash[32];
    if (n <= PIECE) {
        same_hash("a block", data + at, n, want);
        return;
    }
    crypto_generichash_init(&whole, NULL, 0, sizeof hash);
    for (uint64_t from = 0; from < n; from += PIECE) {
        crypto_generichash(hash, sizeof hash, data + at + from, n - from < PIECE ? n - from : PIECE,
                           NULL, 0);
        crypto_generichash_update(&whole, hash, sizeof hash);
    }
    crypto_generichash_final(&whole, hash, sizeof hash);
    same("a block", hash, want);
}

/* Blocks of a layer: K and V, or K only. */
static uint64_t matrices(void) { return u64(360) ? 1 : 2; }

static void check_head(void)
{
    if (size < PAGE || memcmp(data, "BMCKVSNP", 8) != 0 || (u32(8) != 2 && u32(8) != 5) || u32(12) != 0)
        wrong("no snapshot of version 2 or 5");
    if (u64(16) != size || u64(24) % PAGE || u64(24) + u64(32) != size || !u64(40) || u64(48))
        wrong("impossible sizes");
    unsigned char *sealed = malloc(PAGE + u64(32));
    memcpy(sealed, data, PAGE);
    memset(sealed + 64, 0, 32);
    memcpy(sealed + PAGE, data + u64(24), u64(32));
    same_hash("head and tables", sealed, PAGE + u64(32), 64);
    free(sealed);
    name(320, 336);
    name(336, 352);
    zeros(352, 360);
    zeros(368, PAGE);
    if ((u32(8) == 5) != (u64(360) > 0) || u64(360) > u64(184))
        wrong("impossible width of V");
    if ((u32(160) > Q4_1 && u32(160) < Q4H) || u32(160) > Q4 || u32(160) == 3 || u32(164) ||
        !u64(168) || !u64(176) || !u64(184))
        wrong("impossible rows");
    for (uint64_t i = 0; i < SECTIONS; i++)
        if (u64(192 + 16 * i) % 64 || u64(192 + 16 * i) < u64(24) ||
            u64(192 + 16 * i) + u64(200 + 16 * i) > size)
            wrong("section %llu is outside the tables", (unsigned long long)i);
    if (u64(200) != u64(40) * SEQ_BYTES || u64(248) != u64(40) * u64(168) * matrices() * BLOCK_BYTES)
        wrong("the tables have the wrong size");
}

/* Checks a block and its table entry; returns its offset and advances *end to the next block. */
static uint64_t check_block(uint64_t index, uint64_t bytes, uint64_t *end)
{
    const uint64_t entry = u64(240) + index * BLOCK_BYTES, at = u64(entry);
    if (at != *end || u64(entry + 8) != bytes || at + bytes > u64(24))
        wrong("block %llu lies at %llu", (unsigned long long)index, (unsigned long long)at);
    same_pieces(at, bytes, entry + 16);
    zeros(entry + 48, entry + 64);
    *end = (at + bytes + PAGE - 1) / PAGE * PAGE;
    zeros(at + bytes, *end);
    return at;
}

static void print_sequence(uint64_t entry)
{
    printf("%llu %llu %llu %llu %llu %g %.*s :", (unsigned long long)u64(entry + 16),
           (unsigned long long)u64(entry + 8), (unsigned long long)u64(entry + 24),
           (unsigned long long)u64(entry + 40), (unsigned long long)u64(entry + 48), f64(entry + 56),
           u64(entry + 112) ? (int)u64(entry + 112) : 1,
           u64(entry + 112) ? (const char *)data + u64(224) + u64(entry + 104) : "-");
    for (uint64_t i = 0; i < u64(entry + 8); i++)
        printf(" %u", u32(u64(208) + 4 * (u64(entry) + i)));
    printf("\n");
}

static float f32(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float f16(uint64_t at)
{
    const uint32_t bits = (uint32_t)number(at, 2), exponent = bits >> 10 & 31, fraction = bits & 1023;
    const float x =
        exponent ? ldexpf(1024 + (float)fraction, (int)exponent - 25) : ldexpf((float)fraction, -24);
    return bits >> 15 ? -x : x;
}

static uint64_t row_bytes(void)
{
    const uint64_t d = u64(184), groups = (d + 31) / 32;
    const uint64_t bytes[] = {
        [F32] = 4 * d,          [BF16] = 2 * d,        [F16] = 2 * d, [Q8_CHANNEL] = d + 4,
        [Q4_1] = 20 * groups,   [Q4H] = 20 * groups,   [Q8] = d + 4,  [Q6] = 25 * groups + 2,
        [Q5] = 21 * groups + 2, [Q4] = 17 * groups + 2};
    return bytes[u32(160)];
}

/* Element j of an entry of 4, 5 or 6 bits. */
static float packed(uint64_t at, uint64_t j, unsigned bits)
{
    static const int level[] = {2032, 1674, 1355, 1067, 802, 549, 317, 104};
    const uint64_t groups = (u64(184) + 31) / 32, g = j / 32, in = j % 32, each = 4 * (bits - 4);
    const uint64_t high = at + 16 * groups, byte = high + each * groups + g;
    int q = (int)number(at + 16 * g + in % 16, 1) >> (in < 16 ? 0 : 4) & 15;
    if (bits > 4)
        q |= ((int)number(high + each * g + in % each, 1) >> in / each * (bits - 4) &
              (int)(bits == 5 ? 1 : 3))
             << 4;
    const int m = ((int)number(byte, 1) >> (in < 16 ? 0 : 4) & 15) + 1;
    const float part = floorf((float)(level[(q < 8 ? q : 15 - q) & 7] * m) / 256 + .5f);
    const float integer = bits == 4   ? q < 8 ? -part : part
                          : bits == 5 ? floorf((float)((2 * q - 31) * m) / 4 + .5f)
                                      : floorf((float)((2 * q - 63) * m) / 8 + .5f);
    return integer * f32((uint32_t)number(high + each * groups + groups, 2) << 16);
}

/* Element j of the KV entry at offset `at`, as stored. */
static float stored(uint64_t at, uint64_t j)
{
    const uint64_t d = u64(184), groups = (d + 31) / 32, g = j / 32;
    switch (u32(160)) {
    case BF16: return f32((uint32_t)number(at + 2 * j, 2) << 16);
    case F16: return f16(at + 2 * j);
    case Q6: return packed(at, j, 6);
    case Q5: return packed(at, j, 5);
    case Q4: return packed(at, j, 4);
    case Q8:
    case Q8_CHANNEL: return f32(u32(at + d)) * (float)((int)number(at + j, 1) - 128);
    case Q4_1:
    case Q4H: {
        const unsigned code = (unsigned)number(at + 16 * g + j % 16, 1) >> (j % 32 < 16 ? 0 : 4) & 15;
        return f16(at + 16 * groups + 2 * g) * (float)code + f16(at + 18 * groups + 2 * g);
    }
    default: return f32(u32(at + 4 * j));
    }
}

static double value(uint64_t at, uint64_t j)
{
    const uint64_t d = u64(184);
    uint64_t n = 1, first;
    double sum = 0;
    if (u32(160) < Q4H)
        return (double)stored(at, j);
    while (n < 256 && d % (2 * n) == 0)
        n *= 2;
    first = j / n * n;
    for (uint64_t i = 0; i < n; i++)
        sum += (__builtin_popcountll(i & (j - first)) % 2 ? -1 : 1) * (double)stored(at, first + i);
    return sum / sqrt((double)n);
}

static void print_rows(uint64_t at, uint64_t block, uint64_t rows, uint64_t cap)
{
    const uint64_t d = u64(184);
    for (uint64_t h = 0; h < u64(176); h++)
        for (uint64_t i = 0; i < rows; i++) {
            printf("%llu %c %llu %llu", (unsigned long long)(block / matrices()),
                   block % matrices() ? 'V' : 'K', (unsigned long long)h, (unsigned long long)i);
            for (uint64_t j = 0; j < d; j++)
                printf(" %.9g", value(at + (h * cap + i) * row_bytes(), j));
            printf("\n");
        }
}

int main(int argc, char **argv)
{
    if (argc < 2 || sodium_init() < 0)
        return 2;
    read_file(argv[1]);
    check_head();
    const uint64_t layers = u64(168), heads = u64(176), row = row_bytes();
    uint64_t end = PAGE;
    for (uint64_t s = 0; s < u64(40); s++) {
        const uint64_t entry = u64(192) + s * SEQ_BYTES, rows = u64(entry + 16), cap = u64(entry + 24);
        if (!rows || rows > u64(entry + 8) || cap < rows || cap % 16 ||
            u64(entry + 32) > u64(entry + 8))
            wrong("sequence %llu has impossible counts", (unsigned long long)s);
        zeros(entry + 136, entry + 176);
        if (u64(entry + 176) + u64(entry + 184) > u64(232) || data[u64(224) + u64(entry + 176)] != '{')
            wrong("sequence %llu has no sampling parameters", (unsigned long long)s);
        for (uint64_t b = 0; b < matrices() * layers; b++) {
            const uint64_t at = check_block(s * matrices() * layers + b, heads * cap * row, &end);
            for (uint64_t h = 0; h < heads; h++)
                zeros(at + (h * cap + rows) * row, at + (h + 1) * cap * row);
            if (argc > 2 && strtoull(argv[2], NULL, 10) == s)
                print_rows(at, b, rows, cap);
        }
        if (argc == 2)
            print_sequence(entry);
    }
    if (end != u64(24))
        wrong("the tables do not follow the blocks");
    free(data);
    return 0;
}
