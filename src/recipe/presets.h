/* Presets: names for whole recipes. */
#ifndef TG_RECIPE_PRESETS_H
#define TG_RECIPE_PRESETS_H

#include <stddef.h>

typedef struct tg_preset {
    const char *name;
    const char *summary;
    const char *expansion; /* its recipe; '$' is replaced by the value after the '@' */
    const char *standard;  /* the default for '$'; NULL if there is no '$' */
} tg_preset;

extern const tg_preset tg_presets[];
extern const size_t tg_preset_n;

/* The preset with this name; NULL if there is none. No preset has the name of a part. */
const tg_preset *tg_preset_find(const char *name, size_t name_len);

#endif
