/* How much the gradients of several workers share: their direction, their largest entries, and what the values there tell
 * about each other.
 */
#ifndef CLI_SIMILARITY_RUN_H
#define CLI_SIMILARITY_RUN_H

#include <stddef.h>
#include <stdint.h>

/* Means over pairs of workers; NAN where there is none to give. */
typedef struct cli_similarity_row {
    double cosine;      /* NAN if every pair has a worker whose values are all 0 */
    double overlap;     /* entries that are among the k largest of both, over k */
    double information; /* bits per value; NAN with fewer than CLI_SIMILARITY_LEAST values to judge by */
} cli_similarity_row;

enum { CLI_SIMILARITY_LEAST = 64 };

/* Room to measure in. */
typedef struct cli_similarity_room cli_similarity_room;

/* For so many workers, at least two, with up to n_max values each, fewer than 2^32. Reports. */
int cli_similarity_room_new(cli_similarity_room **out, uint32_t workers, size_t n_max);
void cli_similarity_room_free(cli_similarity_room *room);

/* How many of n values are a share `ratio` of them: rounded, but at least 1. */
size_t cli_similarity_k(size_t n, double ratio);

/* Compares values[w][from..from + n) of all workers, and their k largest in magnitude. */
cli_similarity_row cli_similarity_measure(cli_similarity_room *room, const float *const *values, size_t from, size_t n,
                                          size_t k);

/* The mean of items[0], items[stride], ..., n in all, each number over those that have it. */
cli_similarity_row cli_similarity_mean(const cli_similarity_row *items, size_t n, size_t stride);

#endif
