/* A slow link, emulated: hands every operation to another link, and then holds the rank back for the time that its bytes would
 * have taken on a link of a given rate and latency. Every rank has a port of that rate in each direction, so that it waits for
 *
 *     latency + 8 * max(bytes sent, bytes received) / rate
 *
 * an operation. Bytes between ranks of a host take no time. What Ethernet and TCP add is left out, and so is congestion. */
#ifndef TR_SLOW_H
#define TR_SLOW_H

#include "tersegrad/tersegrad.h"

typedef struct tr_slow {
    tg_link link; /* first, so that a link is its emulation */
    tg_link *inner;
    double bits;        /* a second */
    double latency;     /* seconds */
    uint32_t host_size; /* ranks of a host; 0: 1 */
} tr_slow;

/* `s` must stay where it is, and `inner` live as long. */
void tr_slow_init(tr_slow *s, tg_link *inner, double bits, double latency);

#endif
