/* Small pieces of text that several commands need: numbers that a person can read. */
#ifndef CLI_TEXT_H
#define CLI_TEXT_H

#include <stdint.h>

#define CLI_NUMBER_CAP 32

/* 1234567 as "1,234,567"; returns `out`. */
const char *cli_text_count(char out[CLI_NUMBER_CAP], uint64_t value);

/* With `digits` behind the point; "-" if it is not a finite number. Returns `out`. */
const char *cli_text_number(char out[CLI_NUMBER_CAP], double value, int digits);

/* With about three digits whatever its size, such as 0.00123, 1.23 or 4.5e-09; "-" if not finite. */
const char *cli_text_short(char out[CLI_NUMBER_CAP], double value);

#endif
