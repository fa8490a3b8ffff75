/* Names of presets; see presets.h. */
#include "presets.h"

#include <string.h>

#include "tersegrad/tersegrad.h"

size_t cli_presets_list(const char *out[CLI_PRESET_MAX])
{
    tg_part_info part;
    size_t n = 0;
    for (size_t i = 0; tg_part_list(&part, i, NULL) == TG_OK && n + 2 < CLI_PRESET_MAX; i++) {
        if (strcmp(part.stage, "preset") == 0) {
            out[n++] = part.name;
            if (n == 1) {
                out[n++] = "fp16";
                out[n++] = "bf16";
            }
        }
    }
    return n;
}
