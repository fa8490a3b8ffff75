/* The table of all parts, made from parts.def. */
#ifndef TG_RECIPE_PARTS_H
#define TG_RECIPE_PARTS_H

#include "feedback/feedback.h"
#include "pack/pack.h"
#include "quantize/quantize.h"
#include "select/select.h"

typedef enum tg_stage {
    TG_STAGE_feedback,
    TG_STAGE_select,
    TG_STAGE_quantize,
    TG_STAGE_index,
    TG_STAGE_symbol,
    TG_STAGE_N
} tg_stage;

typedef struct tg_part_row {
    const tg_part *part;
    tg_stage stage;
    uint8_t id;
} tg_part_row;

extern const tg_part_row tg_parts[];
extern const size_t tg_part_n;

const char *tg_stage_name(tg_stage stage);

/* The row of the part with this name; NULL if there is none. */
const tg_part_row *tg_part_find(const char *name, size_t name_len);

/* The id of a part in frames. */
uint8_t tg_part_id(const tg_part *part);

/* The default part of a stage, used if a recipe names none. */
const tg_part *tg_part_standard(tg_stage stage);

#endif
