/* Where the exchange of a worker works; see place.h. */
#include "place.h"

#include <stdlib.h>

tg_status tr_place_open(tr_place *p, const tr_device *at, void **host, const uint64_t *lens, size_t n, tg_detail *why)
{
    enum { LINE = 256 };
    uint64_t len = 0;
    *p = (tr_place){.at = at, .host = host, .lens = lens, .n = n, .grads = host};
    if (at == NULL) {
        return TG_OK;
    }
    for (size_t i = 0; i < n; i++) {
        len += (lens[i] + LINE - 1) / LINE * LINE;
    }
    p->grads = calloc(n + 1, sizeof *p->grads);
    if (p->grads == NULL) {
        *why = (tg_detail){"there is not enough memory"};
        return TG_E_MEMORY;
    }
    tg_status status = at->acquire(&p->space, at->device, len, why);
    char *next = p->space;
    for (size_t i = 0; status == TG_OK && i < n; i++) {
        p->grads[i] = next;
        next += (lens[i] + LINE - 1) / LINE * LINE;
    }
    return status;
}

void tr_place_close(tr_place *p)
{
    if (p->at != NULL) {
        p->at->link_free(p->link);
        p->at->release(p->at->device, p->space);
        free(p->grads);
    }
}

tg_status tr_place_link(tg_link **out, tr_place *p, tg_link *inner, uint32_t world, tg_detail *why)
{
    if (p->at == NULL) {
        *out = inner;
        return TG_OK;
    }
    tg_status status = p->at->link_new(&p->link, p->at->device, inner, world, why);
    *out = p->link;
    return status;
}

void tr_place_store(tr_place *p, size_t param)
{
    tg_detail why = {""};
    if (p->at == NULL) {
        return;
    }
    tg_status status = p->at->copy(p->at->device, p->grads[param], p->host[param], p->lens[param], &why);
    if (p->status == TG_OK && status != TG_OK) {
        p->status = status;
        p->why = why;
    }
}

tg_status tr_place_fetch(tr_place *p, tg_detail *why)
{
    tg_status status = p->status;
    if (p->at == NULL) {
        return TG_OK;
    }
    if (status != TG_OK) {
        *why = p->why;
    }
    for (size_t i = 0; status == TG_OK && i < p->n; i++) {
        status = p->at->copy(p->at->device, p->host[i], p->grads[i], p->lens[i], why);
    }
    return status == TG_OK ? p->at->wait(p->at->device, why) : status;
}
