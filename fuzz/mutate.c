/* Structure-aware mutation; see mutate.h. */
#include "mutate.h"

#include <string.h>

enum { INSERT_MAX = 64 };

/* ---- the byte string ------------------------------------------------------------------------------------------------- */

void fuzz_mutant_start(fuzz_mutant *m, const uint8_t *bytes, size_t len)
{
    *m = (fuzz_mutant){.len = len, .cap = len + 4096};
    m->bytes = fuzz_room(m->cap, 0);
    memcpy(m->bytes, bytes, len);
}

void fuzz_mutant_free(fuzz_mutant *m)
{
    free(m->fields);
    free(m->bytes);
}

size_t fuzz_mutant_add(fuzz_mutant *m, fuzz_kind kind, uint32_t role, uint32_t chunk, size_t at, size_t len)
{
    if (m->field_n == m->field_cap) {
        m->field_cap = m->field_cap * 2 + 64;
        m->fields = realloc(m->fields, m->field_cap * sizeof *m->fields);
        PROMISE(m->fields != NULL, "the machine has memory for a small input");
    }
    m->fields[m->field_n++] = (fuzz_field){kind, role, chunk, at, len};
    return at + len;
}

void fuzz_mutant_replace(fuzz_mutant *m, size_t field, size_t at, size_t old_len, const uint8_t *bytes, size_t len)
{
    fuzz_field *f = &m->fields[field];
    size_t from = f->at + at;
    if (m->len - old_len + len > m->cap) {
        m->cap = m->len + len + 4096;
        m->bytes = realloc(m->bytes, m->cap);
        PROMISE(m->bytes != NULL, "the machine has memory for a small input");
    }
    memmove(m->bytes + from + len, m->bytes + from + old_len, m->len - from - old_len);
    if (len > 0) {
        memcpy(m->bytes + from, bytes, len);
    }
    m->len = m->len - old_len + len;
    f->len = f->len - old_len + len;
    for (size_t i = field + 1; i < m->field_n; i++) {
        m->fields[i].at = m->fields[i].at - old_len + len;
    }
}

/* ---- decisions ------------------------------------------------------------------------------------------------------- */

uint32_t fuzz_pick(fuzz_input *input, uint32_t n)
{
    uint32_t drawn = n <= 256 ? fuzz_take8(input) : n <= 65536 ? fuzz_take16(input) : fuzz_take32(input);
    return n == 0 ? 0 : drawn % n;
}

bool fuzz_once_in(fuzz_input *input, uint32_t n)
{
    return fuzz_pick(input, n) == n - 1;
}

/* ---- numbers and floats ---------------------------------------------------------------------------------------------- */

uint64_t fuzz_get_number(const uint8_t *bytes, size_t len)
{
    uint64_t value = 0;
    for (size_t i = 0; i < len; i++) {
        value |= (uint64_t)bytes[i] << 8 * i;
    }
    return value;
}

void fuzz_put_number(uint8_t *bytes, size_t len, uint64_t value)
{
    for (size_t i = 0; i < len; i++) {
        bytes[i] = (uint8_t)(value >> 8 * i);
    }
}

void fuzz_damage_number(fuzz_input *input, uint8_t *bytes, size_t len)
{
    static const uint64_t limits[] = {0,
                                      1,
                                      0x7f,
                                      0xff,
                                      0x7fff,
                                      0xffff,
                                      0x3ffff,
                                      0x40000,
                                      0x40001,
                                      0xffffff,
                                      0x7fffffff,
                                      0x80000000,
                                      0xffffffff,
                                      0x3fffffffffffffff,
                                      0x7fffffffffffffff,
                                      0xfffffffffffffff8,
                                      0xffffffffffffffff};
    uint64_t value = fuzz_get_number(bytes, len);
    switch (fuzz_pick(input, 10)) {
    case 0: value += 1; break;
    case 1: value -= 1; break;
    case 2: value ^= UINT64_C(1) << fuzz_pick(input, (uint32_t)(8 * len)); break;
    case 3: value *= 2; break;
    case 4: value /= 2; break;
    case 5: value += fuzz_pick(input, 64); break;
    case 6: value -= fuzz_pick(input, 64); break;
    case 7: value = fuzz_pick(input, 40); break;
    case 8: value = (uint64_t)fuzz_take32(input) << 32 | fuzz_take32(input); break;
    default: value = limits[fuzz_pick(input, sizeof limits / sizeof *limits)]; break;
    }
    fuzz_put_number(bytes, len, value);
}

void fuzz_damage_floats(fuzz_input *input, uint8_t *bytes, size_t len)
{
    /* NaN, quiet and signalling, of both signs; infinities; zeros; denormals; the largest; 1 */
    static const uint32_t odd[] = {0x7fc00000, 0x7f800001, 0xffc00000, 0xff800001, 0x7f800000,
                                   0xff800000, 0x00000000, 0x80000000, 0x00000001, 0x80000001,
                                   0x007fffff, 0x00800000, 0x7f7fffff, 0xff7fffff, 0x3f800000};
    if (len < 4) {
        fuzz_damage_byte(input, bytes, len);
        return;
    }
    uint8_t *at = bytes + 4 * (size_t)fuzz_pick(input, (uint32_t)(len / 4));
    switch (fuzz_pick(input, 4)) {
    case 0: fuzz_put_number(at, 4, fuzz_take32(input)); break;
    case 1: at[3] ^= 0x80; break;
    default: fuzz_put_number(at, 4, odd[fuzz_pick(input, sizeof odd / sizeof *odd)]); break;
    }
}

void fuzz_damage_byte(fuzz_input *input, uint8_t *bytes, size_t len)
{
    if (len == 0) {
        return;
    }
    uint8_t *at = bytes + fuzz_pick(input, (uint32_t)len);
    switch (fuzz_pick(input, 4)) {
    case 0: *at ^= (uint8_t)(1u << fuzz_pick(input, 8)); break;
    case 1: *at = fuzz_take8(input); break;
    case 2: *at = (uint8_t)(*at + 1); break;
    default: *at = (uint8_t)(*at - 1); break;
    }
}

/* ---- strings of bytes ------------------------------------------------------------------------------------------------ */

static void cut_out(fuzz_input *input, fuzz_mutant *m, size_t field)
{
    size_t len = m->fields[field].len, at = fuzz_pick(input, (uint32_t)len);
    size_t n = fuzz_once_in(input, 4) ? len - at : 1 + fuzz_pick(input, 8);
    fuzz_mutant_replace(m, field, at, n < len - at ? n : len - at, NULL, 0);
}

static void put_in(fuzz_input *input, fuzz_mutant *m, size_t field, const uint8_t *other, size_t other_len)
{
    uint8_t bytes[INSERT_MAX];
    size_t at = fuzz_pick(input, (uint32_t)m->fields[field].len + 1), n = 1 + fuzz_pick(input, INSERT_MAX);
    if (other_len > 0 && fuzz_once_in(input, 2)) {
        size_t from = fuzz_pick(input, (uint32_t)other_len);
        n = n < other_len - from ? n : other_len - from;
        memcpy(bytes, other + from, n);
    } else {
        memset(bytes, fuzz_take8(input), n);
        bytes[0] = fuzz_take8(input);
    }
    fuzz_mutant_replace(m, field, at, 0, bytes, n);
}

/* Overwrites a range: with one byte, with another part of the string, or with a part of the other string. */
static void overwrite(fuzz_input *input, uint8_t *bytes, size_t len, const uint8_t *other, size_t other_len)
{
    size_t at = fuzz_pick(input, (uint32_t)len), n = 1 + fuzz_pick(input, 32);
    n = n < len - at ? n : len - at;
    switch (fuzz_pick(input, 3)) {
    case 0: memset(bytes + at, fuzz_once_in(input, 2) ? 0xff : 0, n); break;
    case 1: memmove(bytes + at, bytes + fuzz_pick(input, (uint32_t)(len - n) + 1), n); break;
    default:
        if (n <= other_len) {
            memcpy(bytes + at, other + fuzz_pick(input, (uint32_t)(other_len - n) + 1), n);
        }
        break;
    }
}

void fuzz_damage_field(fuzz_input *input, fuzz_mutant *m, size_t field, const uint8_t *other, size_t other_len)
{
    const fuzz_field *f = &m->fields[field];
    uint8_t *bytes = m->bytes + f->at;
    if (f->kind == FUZZ_NUMBER) {
        fuzz_damage_number(input, bytes, f->len);
    } else if (f->kind == FUZZ_FLOATS && f->len > 0 && !fuzz_once_in(input, 4)) {
        fuzz_damage_floats(input, bytes, f->len);
    } else if (f->len == 0) {
        put_in(input, m, field, other, other_len);
    } else {
        switch (fuzz_pick(input, 8)) {
        case 0: cut_out(input, m, field); break;
        case 1: put_in(input, m, field, other, other_len); break;
        case 2:
        case 3: overwrite(input, bytes, f->len, other, other_len); break;
        default: fuzz_damage_byte(input, bytes, f->len); break;
        }
    }
}
