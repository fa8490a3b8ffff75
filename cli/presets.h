/* Names of presets, for commands that go through all of them. */
#ifndef CLI_PRESETS_H
#define CLI_PRESETS_H

#include <stddef.h>

enum { CLI_PRESET_MAX = 64 };

/* All presets of the library, and the half precisions fp16 and bf16 after the first. The texts are static. */
size_t cli_presets_list(const char *out[CLI_PRESET_MAX]);

#endif
