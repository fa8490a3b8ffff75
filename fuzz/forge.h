/* Forges indices and coded symbols of a chunk, valid or wrong in one place. Changes of single bytes seldom reach such cases. */
#ifndef TG_FUZZ_FORGE_H
#define TG_FUZZ_FORGE_H

#include "mutate.h"
#include "recipe/recipe.h"

/* A mode of indices; most often a valid one. */
uint8_t fuzz_forge_mode(fuzz_input *input);

/* Replaces the indices of a chunk of n elements, and often its mode and count, by forged ones. */
void fuzz_forge_indices(fuzz_input *input, fuzz_mutant *m, size_t field, uint32_t n);

/* Replaces the coded symbols of a chunk by a form, a code table and a stream. */
void fuzz_forge_symbols(fuzz_input *input, fuzz_mutant *m, size_t field, const tg_recipe *recipe);

#endif
