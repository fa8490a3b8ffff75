/* The table of presets. */
#include "recipe/presets.h"

#include <string.h>

const tg_preset tg_presets[] = {
    {"dense", "every value uncompressed, in fp32: the baseline", "fp32", NULL},
    {"ef-topk", "top-k: the largest magnitudes, with error feedback", "ef+topk@$", "0.01"},
    {"random-k", "a random set of coordinates that all ranks share, with error feedback (arXiv 2009.09271)",
     "ef+randomk@$", "0.01"},
    {"random-block", "a random block of coordinates that all ranks share, with error feedback (arXiv 2009.09271)",
     "ef+randomblock@$", "0.01"},
    {"adacomp", "AdaComp: adaptive selection in bins, signs, one scale per tensor (arXiv 1712.02679)",
     "ef@again=no+adabins@$+sign@scale=meanmax", "auto"},
    {"co3", "CO3: minifloats, Huffman coding and decaying error feedback (arXiv 2203.09044)", "ef@decay=0.9+$+huffman",
     "fp4"},
    {"lgc-ring", "LGC: codes of a learned autoencoder, all-reduced (arXiv 2103.08870)",
     "ef+topk@$,coords=shared+autoencoder@ring", "0.001"},
    {"lgc-server", "LGC: the leader's code and innovations, through a parameter server (arXiv 2103.08870)",
     "ef+topk@$,coords=shared+autoencoder@server", "0.001"},
    {"dgc",
     "Deep Gradient Compression: top-k with momentum correction; the optimizer must have no momentum (arXiv "
     "1712.01887)",
     "momentum+topk@$", "0.001"},
    {"powersgd", "PowerSGD: low-rank approximation of matrices, with error feedback (arXiv 1905.13727)",
     "ef+lowrank@$,factors=bf16", "4"},
    {"bingrad-b", "BinGrad: two means, deterministic (arXiv 2002.11082)", "bingrad@b", NULL},
    {"bingrad-pb", "BinGrad: one magnitude and a random sign, almost unbiased (arXiv 2002.11082)", "bingrad@pb", NULL},
    {"terngrad", "TernGrad: three levels, unbiased (arXiv 1705.07878)", "ternary", NULL},
    {"signsgd", "signSGD with majority vote (arXiv 1802.04434)", "sign@scale=one", NULL},
    {"ef-signsgd", "signs times the mean magnitude, with error feedback (arXiv 1901.09847)", "ef+sign", NULL},
    {"onebit", "one-bit SGD: two means split at 0, with error feedback", "ef+bingrad@zero", NULL},
    {"terse", "for local steps: AdaComp's selection in bins of one size, signs, gaps by rANS, small tensors in fp8",
     "ef@small=fp8+adabins@$+sign@scale=meanmax+gaps+rans", "500"},
    {"sparseloco",
     "for local steps: 1/64 by top-k, about 2 bits a value, decaying feedback, gaps by rANS (after arXiv 2508.15706)",
     "ef@decay=0.95,small=same,again=no+topk@$+fp4+gaps+rans", "0.015625"},
};

const size_t tg_preset_n = sizeof tg_presets / sizeof *tg_presets;

const tg_preset *tg_preset_find(const char *name, size_t name_len)
{
    for (size_t i = 0; i < tg_preset_n; i++) {
        if (strlen(tg_presets[i].name) == name_len && memcmp(tg_presets[i].name, name, name_len) == 0) {
            return &tg_presets[i];
        }
    }
    return NULL;
}
