/* The small floats of OCP MX (v1.0, section 5.3). */
#include "kernels/blocks.h"

const tg_block_format tg_e4m3 = {3, 7, 0x80, 0x7e, TG_NO_INFINITY, 8, 0x600000, 448};
const tg_block_format tg_e5m2 = {2, 15, 0x80, 0x7b, 0x7c, 15, 0x600000, 57344};
const tg_block_format tg_e2m1 = {1, 1, 0x08, 0x07, TG_NO_INFINITY, 2, 0x400000, 6};
