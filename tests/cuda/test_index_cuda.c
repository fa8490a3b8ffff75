/* Indices on the GPU against the host, chunk by chunk: the same bytes for any selection, and of damaged bytes the same verdict. */
#include "base/bits.h"
#include "exec/cuda/select.h"
#include "plan/plan.h"
#include "recipe/parts.h"
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNKS = 48, N_MAX = 70000, BYTES_MAX = 65536, SIDE = 5 };

extern const tg_index_part tg_index_adacomp8, tg_index_adacomp16; /* adacomp.c */

typedef struct pack {
    const tg_index_part *part;
    uint8_t id;
    bool has_rans;
    uint32_t bin;
} pack;

static const pack packs[] = {{&tg_index_gaps, TG_GPU_INDEX_GAPS, false, 0},
                             {&tg_index_gaps, TG_GPU_INDEX_GAPS, true, 0},
                             {&tg_index_bitmap, TG_GPU_INDEX_BITMAP, false, 0},
                             {&tg_index_adacomp8, TG_GPU_INDEX_ADACOMP8, false, 50},
                             {&tg_index_adacomp16, TG_GPU_INDEX_ADACOMP16, false, 500},
                             {&tg_index_adacomp16, TG_GPU_INDEX_ADACOMP16, false, 3}};

/* A chunk on both sides. */
typedef struct sample {
    uint32_t n, count, len;
    uint8_t mode;
    bool is_joint;
    uint64_t mask[N_MAX / 64 + 1];
    uint16_t symbols[N_MAX];
    uint8_t bytes[BYTES_MAX + 64];
} sample;

static sample samples[CHUNKS];
static uint8_t body[CHUNKS * (BYTES_MAX + N_MAX / 8 + 64)], out[CHUNKS][SIDE + BYTES_MAX + N_MAX / 8 + 64];
static uint32_t positions[CHUNKS * N_MAX];
static uint8_t symbols[2 * CHUNKS * N_MAX];
static tg_view views[CHUNKS];
static uint8_t *outs[CHUNKS];
static tg_gpu_unit units[CHUNKS];
static tg_gpu_piece pieces[CHUNKS];
static tg_gpu_chunk chunks[CHUNKS];
static tg_gpu_verdict verdict;
static _Alignas(256) char host_part[1 << 20], device_part[1 << 22];
static tg_gpu_selection selection;
static tg_gpu_pass pass;

/* ---- selections ------------------------------------------------------------------------------------------------------------- */

static void mark(sample *s, uint32_t i)
{
    s->mask[i / 64] |= UINT64_C(1) << i % 64;
}

/* Selections of all densities, in runs, at the ends, and with long gaps. */
static void choose(sample *s, test_random *r)
{
    static const uint32_t lens[] = {1, 2, 31, 32, 33, 64, 1023, 1024, 1025, 5000, 65536, N_MAX};
    uint32_t share = 1u << test_bits(r) % 16, run = 1 + (uint32_t)(test_bits(r) % 400);
    s->n = lens[test_bits(r) % 12];
    memset(s->mask, 0, sizeof s->mask);
    switch (test_bits(r) % 6) {
    case 0: mark(s, (uint32_t)(test_bits(r) % s->n)); break;
    case 1: tg_mask_fill(s->mask, 0, s->n); break;
    case 2:
        for (uint32_t i = (uint32_t)(test_bits(r) % s->n); i < s->n; i += run * 3) {
            tg_mask_fill(s->mask, i, i + run < s->n ? i + run : s->n);
        }
        break;
    case 3: /* all but a few, or a few close together after a long gap */
        tg_mask_fill(s->mask, s->n - s->n / 50 - 1, s->n);
        mark(s, 0);
        break;
    default:
        for (uint32_t i = 0; i < s->n; i++) {
            if (test_bits(r) % share == 0) {
                mark(s, i);
            }
        }
    }
    s->count = (uint32_t)tg_mask_count(s->mask, s->n);
    for (uint32_t i = 0; i < s->count; i++) {
        s->symbols[i] = test_bits(r) % 2;
    }
}

/* By the host, as routes/sparse.c does. */
static void write_on_host(sample *s, const pack *k)
{
    s->is_joint = false;
    s->len = 0;
    s->mode = 0;
    if (s->count == 0) {
        return;
    }
    if (k->part->cell_max != 0) {
        s->len = (uint32_t)k->part->write_joint(s->bytes, &s->mode, s->mask, s->symbols, s->n, s->count, k->bin);
        s->is_joint = s->len > 0;
    }
    if (!s->is_joint) {
        bool rans = k->has_rans && k->part->write_rans != NULL;
        s->len = (uint32_t)(rans ? k->part->write_rans(s->bytes, &s->mode, s->mask, NULL, s->n, s->count)
                                 : k->part->write(s->bytes, &s->mode, s->mask, NULL, s->n, s->count));
    }
}

/* ---- the device's side ---------------------------------------------------------------------------------------------------------- */

static void set_up(const pack *k)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < CHUNKS; i++) {
        uint32_t n = samples[i].n;
        units[i] = (tg_gpu_unit){.hi = n,
                                 .flat_at = at,
                                 .piece_first = i,
                                 .piece_n = 1,
                                 .bin = k->bin,
                                 .gain = 1.0f,
                                 .route = TG_ROUTE_TESTED,
                                 .coordinates = TG_AT_INDICES,
                                 .select = TG_GPU_SELECT_THRESHOLD,
                                 .index = k->id,
                                 .quantize = k->bin > 0 ? TG_GPU_SIGN : 0,
                                 .symbol = k->has_rans ? TG_GPU_RANS : TG_GPU_BITS};
        pieces[i] = (tg_gpu_piece){.n = n, .tensor = i};
        chunks[i] = (tg_gpu_chunk){.element_at = at, .unit = i, .n = n};
        at += n;
        outs[i] = out[i] + i % 5;
    }
    const tg_gpu_tables t = {units, pieces, chunks, CHUNKS, CHUNKS};
    tg_gpu_selection_lens lens = tg_gpu_selection_measure(&t, NULL);
    assert_true(lens.host <= sizeof host_part && lens.device <= sizeof device_part);
    tg_gpu_selection_set_up(&selection, host_part, device_part, &t, NULL);
    memcpy(device_part, host_part, lens.copied);
    pass = (tg_gpu_pass){.units = units,
                         .pieces = pieces,
                         .chunks = chunks,
                         .chunk_n = CHUNKS,
                         .space = {.symbols = symbols, .positions = positions, .views = views, .out = outs},
                         .verdict = &verdict,
                         .has_values = 1};
    verdict = (tg_gpu_verdict){0};
}

/* Writes all samples; the same bytes. */
static void write_and_compare(const pack *k)
{
    set_up(k);
    for (uint32_t i = 0; i < CHUNKS; i++) {
        const sample *s = &samples[i];
        uint64_t at = 0, symbols_len = k->bin > 0 ? (s->count + 7) / 8 : 0;
        for (uint32_t j = 0; j < s->n; j++) {
            if (s->mask[j / 64] >> j % 64 & 1) {
                symbols[2 * chunks[i].element_at + at] = (uint8_t)s->symbols[at];
                positions[chunks[i].element_at + at++] = j;
            }
        }
        views[i] = (tg_view){.symbols = SIDE, .indices = SIDE + symbols_len, .count = s->count};
        memset(out[i], 0x5a, sizeof out[i]);
    }
    tg_gpu_write_indices(&pass);
    for (uint32_t i = 0; i < CHUNKS; i++) {
        const sample *s = &samples[i];
        const tg_view *v = &views[i];
        if (v->mode != s->mode || v->index_len != s->len || v->is_joint != s->is_joint ||
            (s->is_joint && v->indices != v->symbols) || memcmp(outs[i] + v->indices, s->bytes, s->len) != 0) {
            fail_msg("pack %u: %u of %u elements: mode %u, %u bytes, not mode %u, %u bytes, or they differ", k->id,
                     s->count, s->n, v->mode, v->index_len, s->mode, s->len);
        }
        if (s->mode != TG_MODE_RANS) {                            /* which replaces a longer code */
            assert_int_equal(outs[i][v->indices + s->len], 0x5a); /* nothing after them is touched */
        }
    }
}

/* ---- damage ----------------------------------------------------------------------------------------------------------------------- */

static void damage(sample *s, test_random *r)
{
    static const uint8_t modes[] = {0, 1, 5, 17, 18, 19, 31, 32, 33, 34, 35, 36, 37, 38, 255};
    uint32_t at = s->len > 0 ? (uint32_t)(test_bits(r) % s->len) : 0;
    switch (test_bits(r) % 8) {
    case 0: s->bytes[at] ^= (uint8_t)(1 << test_bits(r) % 8); break;
    case 1: s->bytes[at] = (uint8_t)test_bits(r); break;
    case 2: s->len -= s->len > 0 ? 1 : 0; break;
    case 3: s->bytes[s->len++] = (uint8_t)(test_bits(r) % 2 * test_bits(r)); break;
    case 4: s->count += s->count < s->n ? 1 : 0; break;
    case 5: s->count -= s->count > 1 ? 1 : 0; break;
    case 6: s->mode = modes[test_bits(r) % 15]; break;
    default: break; /* sound */
    }
    s->is_joint = tg_mode_is_joint(s->mode);
    if (s->count == 0 && s->n > 0) {
        s->mode = 0;
        s->is_joint = false;
        s->len = 0;
    }
}

/* As tg_read_indices of routes/unsparse.c. */
static bool is_sound(sample *s, const pack *k)
{
    if (s->count == 0) {
        return true;
    }
    if (s->is_joint) {
        return k->part->read_joint != NULL &&
               k->part->read_joint(s->mask, s->symbols, s->mode, s->bytes, s->len, s->n, s->count, k->bin);
    }
    bool rans = k->has_rans && k->part->read_rans != NULL;
    return rans ? k->part->read_rans(s->mask, s->mode, s->bytes, s->len, s->n, s->count)
                : k->part->read(s->mask, s->mode, s->bytes, s->len, s->n, s->count);
}

static void compare_sound(const sample *s, uint32_t i, bool has_signs)
{
    uint32_t at = 0;
    for (uint32_t j = 0; j < s->n; j++) {
        if (s->mask[j / 64] >> j % 64 & 1) {
            assert_int_equal(positions[chunks[i].element_at + at], j);
            if (has_signs) {
                assert_int_equal(symbols[2 * chunks[i].element_at + at], s->symbols[at] & 1);
            }
            at++;
        }
    }
    assert_int_equal(at, s->count);
}

/* Reads all samples; the first one that the host refuses is named, and all such count as without values. */
static void read_and_compare(const pack *k)
{
    uint32_t first_bad = CHUNKS;
    set_up(k);
    uint64_t at = 1;
    for (uint32_t i = 0; i < CHUNKS; i++) {
        const sample *s = &samples[i];
        uint64_t symbols_at = at;
        for (uint32_t j = 0; k->bin > 0 && !s->is_joint && j < s->count; j++) {
            at += j % 8 == 0 ? 1 : 0;
            body[at - 1] = (uint8_t)((j % 8 == 0 ? 0 : body[at - 1]) | (s->symbols[j] & 1) << j % 8);
        }
        memcpy(body + at, s->bytes, s->len);
        views[i] = (tg_view){.symbols = symbols_at,
                             .indices = at,
                             .count = s->count,
                             .index_len = (uint16_t)s->len,
                             .mode = s->mode,
                             .is_joint = s->is_joint};
        at += s->len + i % 3;
    }
    tg_gpu_read_indices(&pass, body, &selection);
    for (uint32_t i = 0; i < CHUNKS; i++) {
        sample *s = &samples[i];
        bool sound = is_sound(s, k);
        first_bad = !sound && i < first_bad ? i : first_bad;
        if (views[i].count != (sound ? s->count : 0)) {
            fail_msg("pack %u%s: %u of %u elements, mode %u, %u bytes: the host finds them %s", k->id,
                     k->has_rans ? " with rans" : "", s->count, s->n, s->mode, s->len, sound ? "sound" : "damaged");
        }
        if (sound && s->count > 0) {
            compare_sound(s, i, k->bin > 0);
        }
    }
    assert_int_equal(verdict.bad_chunk, first_bad < CHUNKS ? UINT32_MAX - first_bad : 0);
}

/* ---- tests ------------------------------------------------------------------------------------------------------------------------ */

static void test_indices(void **state)
{
    (void)state;
    test_random r = {5};
    for (int round = 0; round < 30; round++) {
        const pack *k = &packs[round % (int)(sizeof packs / sizeof *packs)];
        for (uint32_t i = 0; i < CHUNKS; i++) {
            choose(&samples[i], &r);
            write_on_host(&samples[i], k);
        }
        write_and_compare(k);
        for (uint32_t i = 0; i < CHUNKS; i++) {
            damage(&samples[i], &r);
        }
        read_and_compare(k);
    }
}

/* Bytes at random in every mode, and Rice codes that are longer than any writer makes them. */
static void test_noise(void **state)
{
    (void)state;
    test_random r = {6};
    for (int round = 0; round < 12; round++) {
        const pack *k = &packs[round % (int)(sizeof packs / sizeof *packs)];
        for (uint32_t i = 0; i < CHUNKS; i++) {
            sample *s = &samples[i];
            choose(s, &r);
            s->count = s->count > 0 ? s->count : 1;
            s->len = i % 8 == 0 ? 65535 : (uint32_t)(test_bits(&r) % 300);
            s->mode = (uint8_t)(i % 2 == 0 ? test_bits(&r) % 19 : 32 + test_bits(&r) % 6);
            s->is_joint = tg_mode_is_joint(s->mode);
            uint8_t filter = i % 3 == 0 ? 0xff : i % 3 == 1 ? 0x11 : 0;
            for (uint32_t b = 0; b < s->len; b++) {
                s->bytes[b] = (uint8_t)(test_bits(&r) & filter);
            }
        }
        read_and_compare(k);
    }
}

/* A Rice code with parameter k, which no writer would take for these gaps; false: it is too long. */
static bool write_rice(sample *s, unsigned k)
{
    uint64_t at = 0;
    uint32_t next = 0;
    memset(s->bytes, 0, sizeof s->bytes);
    for (uint32_t i = 0; i < s->n; i++) {
        if ((s->mask[i / 64] >> i % 64 & 1) == 0) {
            continue;
        }
        uint32_t gap = i - next, ones = gap >> k;
        if (at + ones + 1 + k > 8 * 65535) {
            return false;
        }
        for (uint32_t b = 0; b < ones + 1 + k; b++, at++) {
            uint32_t bit = b <= ones ? b < ones : gap >> (b - ones - 1) & 1;
            s->bytes[at / 8] |= (uint8_t)(bit << at % 8);
        }
        next = i + 1;
    }
    s->len = (uint32_t)((at + 7) / 8);
    s->mode = (uint8_t)k;
    s->is_joint = false;
    return true;
}

/* Rice codes with all parameters, sound and damaged, with gaps that fill the bits of a code or few of them. */
static void test_rice(void **state)
{
    (void)state;
    test_random r = {7};
    for (int round = 0; round < 8; round++) {
        for (uint32_t i = 0; i < CHUNKS; i++) {
            sample *s = &samples[i];
            do {
                choose(s, &r);
            } while (s->count == 0 || !write_rice(s, (i + (uint32_t)round) % 19));
            if (round >= 4) {
                damage(s, &r);
            }
        }
        read_and_compare(&packs[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_indices), cmocka_unit_test(test_noise),
                                       cmocka_unit_test(test_rice)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
