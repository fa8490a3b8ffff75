/* The table of all parts, made from parts.def. */
#include "recipe/parts.h"

#include <string.h>

#define TG_PART(stage, name, id) extern const tg_##stage##_part tg_##stage##_##name;
#include "recipe/parts.def"
#undef TG_PART

const tg_part_row tg_parts[] = {
#define TG_PART(stage, name, id) {&tg_##stage##_##name.part, TG_STAGE_##stage, id},
#include "recipe/parts.def"
#undef TG_PART
};

const size_t tg_part_n = sizeof tg_parts / sizeof *tg_parts;

const char *tg_stage_name(tg_stage stage)
{
    static const char *const names[TG_STAGE_N] = {"feedback", "select", "quantize", "pack (indices)", "pack (symbols)"};
    return names[stage];
}

const tg_part_row *tg_part_find(const char *name, size_t name_len)
{
    for (size_t i = 0; i < tg_part_n; i++) {
        const char *candidate = tg_parts[i].part->name;
        if (strlen(candidate) == name_len && memcmp(candidate, name, name_len) == 0) {
            return &tg_parts[i];
        }
    }
    return NULL;
}

uint8_t tg_part_id(const tg_part *part)
{
    return tg_part_find(part->name, strlen(part->name))->id;
}

const tg_part *tg_part_standard(tg_stage stage)
{
    static const tg_part *const standard[TG_STAGE_N] = {
        &tg_feedback_none.part, &tg_select_all.part, &tg_quantize_fp32.part, &tg_index_gaps.part, &tg_symbol_bits.part,
    };
    return standard[stage];
}
