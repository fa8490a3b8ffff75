/* Presets: names for whole recipes. */
#ifndef TG_CODEC_PRESETS_H
#define TG_CODEC_PRESETS_H

#include <stddef.h>

typedef struct tg_preset {
    const char *name;
    const char *summary;
    const char *expansion; /* '$' stands for what follows the '@' */
    const char *standard;  /* what '$' is if nothing follows; NULL if there is no '$' */
} tg_preset;

extern const tg_preset tg_presets[];
extern const size_t tg_preset_n;

/* The preset of this name, or NULL. No preset has the name of a part. */
const tg_preset *tg_preset_find(const char *name, size_t name_len);

#endif
