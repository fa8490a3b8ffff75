/* See halves.h. Halves are converted a few at a time. */
#include "quantize/halves.h"

#include "base/bytes.h"

enum { PIECE = 1024 };

bool tg_halves_write(uint8_t *bytes, const float *values, size_t n, bool (*narrow)(void *, const float *, size_t))
{
    bool finite = true;
    for (size_t done = 0; done < n; done += PIECE) {
        uint16_t halves[PIECE];
        size_t m = n - done < PIECE ? n - done : PIECE;
        finite = narrow(halves, values + done, m) && finite;
        for (size_t i = 0; i < m; i++) {
            tg_put16(bytes + 2 * (done + i), halves[i]);
        }
    }
    return finite;
}

/* Loads up to PIECE halves; returns how many. */
static size_t load(uint16_t halves[PIECE], const uint8_t *bytes, size_t n)
{
    size_t m = n < PIECE ? n : PIECE;
    for (size_t i = 0; i < m; i++) {
        halves[i] = tg_get16(bytes + 2 * i);
    }
    return m;
}

void tg_halves_read(float *values, const uint8_t *bytes, size_t n, void (*widen)(float *, const void *, size_t))
{
    for (size_t done = 0, m = 0; done < n; done += m) {
        uint16_t halves[PIECE];
        m = load(halves, bytes + 2 * done, n - done);
        widen(values + done, halves, m);
    }
}

void tg_halves_add(float *sums, const uint8_t *bytes, float weight, size_t n,
                   void (*add)(float *, const void *, float, size_t))
{
    for (size_t done = 0, m = 0; done < n; done += m) {
        uint16_t halves[PIECE];
        m = load(halves, bytes + 2 * done, n - done);
        add(sums + done, halves, weight, m);
    }
}
