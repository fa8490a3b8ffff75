/* Where the exchange of a worker works: on the CPU, in the model's own gradients, or on a device. Layers and optimizer are on the CPU in
 * any case. So gradients are copied to the device, each when it is complete, and averages back. */
#ifndef TR_PLACE_H
#define TR_PLACE_H

#include <stddef.h>
#include <tersegrad/tersegrad.h>

/* A device and its functions, such as those of tersegrad/cuda.h, which have the same meaning. */
typedef struct tr_device {
    tg_device *device;
    tg_status (*acquire)(void **out, tg_device *device, uint64_t len, tg_detail *why);
    void (*release)(tg_device *device, void *block);
    tg_status (*copy)(tg_device *device, void *to, const void *from, uint64_t len, tg_detail *why);
    tg_status (*wait)(tg_device *device, tg_detail *why);
    tg_status (*link_new)(tg_link **out, tg_device *device, tg_link *inner, uint32_t world, tg_detail *why);
    void (*link_free)(tg_link *link);
} tr_device;

/* The gradients of a worker where its exchange works. */
typedef struct tr_place {
    const tr_device *at; /* NULL: the CPU */
    void **host;         /* the model's gradients, by parameter */
    const uint64_t *lens;
    size_t n;
    void **grads; /* what the exchange is given: `host`, or copies on the device */
    void *space;
    tg_link *link;    /* wraps the worker's link; NULL: none does */
    tg_status status; /* of copies to the device, the first that failed */
    tg_detail why;
} tr_place;

/* `host` and `lens`, bytes of each parameter, must outlive the place. Call tr_place_close also on failure. */
tg_status tr_place_open(tr_place *p, const tr_device *at, void **host, const uint64_t *lens, size_t n, tg_detail *why);
void tr_place_close(tr_place *p);

/* The link for the exchange: `inner`, or one that wraps it. */
tg_status tr_place_link(tg_link **out, tr_place *p, tg_link *inner, uint32_t world, tg_detail *why);

/* A gradient to the device. tr_place_fetch returns a failure. */
void tr_place_store(tr_place *p, size_t param);

/* All averages back to the model. */
tg_status tr_place_fetch(tr_place *p, tg_detail *why);

#endif
