/* Decimal numbers in recipes, the same in every locale. */
#ifndef TG_BASE_NUMBER_H
#define TG_BASE_NUMBER_H

#include <stdbool.h>
#include <stddef.h>

#define TG_NUMBER_CAP 32

/* Parses all `len` characters as a decimal number (digits, point, sign, exponent); false if they are not one. */
bool tg_number_read(double *out, const char *text, size_t len);

/* Writes the shortest decimal that reads back as the same number. */
void tg_number_write(char out[TG_NUMBER_CAP], double value);

#endif
