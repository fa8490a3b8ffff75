/* Positions of the parameters of `lowrank`. */
#ifndef TG_QUANTIZE_LOWRANK_H
#define TG_QUANTIZE_LOWRANK_H

enum { TG_LOWRANK_RANK, TG_LOWRANK_FACTORS, TG_LOWRANK_PARAM_N };

enum { TG_FACTORS_FP32, TG_FACTORS_BF16 };

#endif
