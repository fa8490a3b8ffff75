/* Shared by the pooling layers: every output depends on one window of the input. */
#include "layers.h"

#include <assert.h>

tr_signal *tr_pool(tr_net *net, tr_signal *in, tr_window window, const tr_layer_kind *kind)
{
    assert(window.padding == 0 && in->height >= window.height && in->width >= window.width);
    tr_signal *out = tr_net_signal(net, in->channels, (in->height - window.height) / window.stride + 1,
                                   (in->width - window.width) / window.stride + 1, 1);
    tr_net_layer(net, kind, in, out)->window = window;
    return out;
}
