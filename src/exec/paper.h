/* An executor on paper: runs a plan without gradients, residuals and frames. Every pass is only noted, with its size. Frames have
 * lengths and no bytes: their memory is address space that nobody may touch. For outlines of a step (link/outline.c). */
#ifndef TG_EXEC_PAPER_H
#define TG_EXEC_PAPER_H

#include "exec/exec.h"

typedef struct tg_reserved tg_reserved;

typedef struct tg_paper {
    tg_device device; /* first, so that options can name it */
    void (*note)(struct tg_paper *paper, const tg_work *work);
    void *context;         /* of `note` */
    const double *bits;    /* an element of each tensor, where lengths depend on gradients; NULL: the longest */
    uint64_t residual_len; /* bytes of all runs that encode */
    bool is_exact;         /* no length was by `bits` */
    tg_reserved *reserved;
} tg_paper;

/* The rest is the caller's to fill in. */
void tg_paper_begin(tg_paper *paper);
/* When nothing uses it any more. */
void tg_paper_end(tg_paper *paper);

/* paper_lgc.c */
extern const struct tg_lgc_passes tg_paper_lgc_passes;

#endif
