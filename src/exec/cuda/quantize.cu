/* Chooses the kernels that quantize the units of a pass; see quantize.h. */
#include "exec/cuda/quantize.h"

#include "exec/cuda/bucket.h"

extern "C" const char *tg_gpu_quantize_lacks(const tg_gpu_unit *unit)
{
    (void)unit;
    return nullptr;
}

extern "C" uint32_t tg_gpu_quantize_kinds(const tg_gpu_unit *unit)
{
    unsigned kind = tg_quantize_kind(*unit);
    uint32_t head = unit->head_len != 0 ? 1u << TG_KIND_HEAD : 0, packs = tg_unit_packs_buckets(*unit) ? 1u << TG_KIND_PACKS : 0;
    bool is_packed = kind != TG_KIND_NONE && kind != TG_KIND_BLOCKS && tg_unit_sends(*unit, false);
    uint32_t packed = is_packed ? 1u << tg_unit_packed(*unit) : 0;
    uint32_t by = tg_unit_has_warps(*unit) ? 1u << TG_KIND_WARPS : kind != TG_KIND_NONE ? 1u << TG_KIND_TEAMS : 0;
    return 1u << kind | head | packs | packed | by;
}

extern "C" int tg_gpu_rounds_leaves(const tg_gpu_unit *unit)
{
    return tg_unit_makes_leaves(*unit) || tg_unit_packs_buckets(*unit) ? 1 : 0;
}

static void launch_all(const tg_gpu_pass *p, bool is_sparse)
{
    tg_launch_ternary(p, is_sparse);
    tg_launch_qsgd(p, is_sparse);
    tg_launch_natural(p, is_sparse);
    tg_launch_two_means(p, is_sparse);
    tg_launch_two_sided(p, is_sparse);
    tg_launch_linear(p, is_sparse);
    tg_launch_greedy(p, is_sparse);
    tg_launch_exact(p, is_sparse);
    tg_launch_minifloat(p, is_sparse);
    tg_launch_sign(p, is_sparse);
    tg_launch_blocks(p, is_sparse);
}

extern "C" void tg_gpu_quantize_dense(const tg_gpu_pass *p)
{
    launch_all(p, false);
}

extern "C" void tg_gpu_quantize_values(const tg_gpu_pass *p)
{
    launch_all(p, true);
}
