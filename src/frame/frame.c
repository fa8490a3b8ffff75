/* Writes frames and reads them strictly: nothing of a frame is used before all of it is known to be right. */
#include "frame/frame.h"

#include "base/bytes.h"
#include "base/fields.h"
#include "kernels/hash.h"
#include "recipe/policy.h"
#include "tersegrad/experimental.h"

#include <inttypes.h>
#include <string.h>

enum { DESCRIBED = 1u, HAS_BOTH = TG_HAS_INDICES | TG_HAS_VALUES };

static const uint8_t magic[4] = {'T', 'G', 'F', 'R'};

/* ---- header ------------------------------------------------------------------------------------------------------------ */

typedef struct header {
    uint8_t version, flags;
    uint32_t rank, slice, slices, description_len;
    uint64_t frame_len, step, fingerprint;
} header;

/* Reads a header and checks all that can be checked without knowing the model. */
static tg_status get_header(header *out, const uint8_t *at, size_t len, tg_detail *why)
{
    if (len < sizeof magic || memcmp(at, magic, sizeof magic) != 0) {
        return tg_fail(TG_E_FRAME, why, "this is not a Tersegrad frame");
    }
    if (len > 4 && at[4] != TG_FRAME_VERSION) {
        return tg_fail(TG_E_VERSION, why, "the frame has version %u, and this library reads version %d", at[4],
                       TG_FRAME_VERSION);
    }
    if (len < TG_FRAME_HEADER + TG_FRAME_CHECKSUM) {
        return tg_fail(TG_E_FRAME, why, "the frame ends after %zu bytes, inside its header", len);
    }
    header h = {.version = at[4],
                .flags = at[5],
                .rank = (uint32_t)tg_get_field(at + 8, 4),
                .slice = (uint32_t)tg_get_field(at + 12, 4),
                .slices = (uint32_t)tg_get_field(at + 16, 4),
                .description_len = (uint32_t)tg_get_field(at + 20, 4),
                .frame_len = tg_get_field(at + 24, 8),
                .step = tg_get_field(at + 32, 8),
                .fingerprint = tg_get_field(at + 40, 8)};
    if (h.frame_len != len) {
        return tg_fail(TG_E_FRAME, why, "the frame has %zu bytes, but its header says %" PRIu64, len, h.frame_len);
    }
    bool described = (h.flags & DESCRIBED) != 0;
    if ((h.flags & ~(DESCRIBED | HAS_BOTH)) != 0 || (h.flags & HAS_BOTH) == 0 || tg_get_field(at + 6, 2) != 0 ||
        h.rank == UINT32_MAX || h.slice >= h.slices || (!described && h.description_len != 0) ||
        h.description_len > len - TG_FRAME_HEADER - TG_FRAME_CHECKSUM) {
        return tg_fail(TG_E_FRAME, why, "the frame is damaged: its header makes no sense");
    }
    *out = h;
    return TG_OK;
}

/* ---- writing ----------------------------------------------------------------------------------------------------------- */

static size_t around(const tg_codec *c, uint64_t body_len)
{
    uint64_t len = c->front_len + body_len + TG_FRAME_CHECKSUM;
    return len > SIZE_MAX ? SIZE_MAX : (size_t)len;
}

size_t tg_frame_bound(const tg_codec *c, const tg_plan *plan, uint32_t slice)
{
    return around(c, tg_body_bound(plan, slice));
}

size_t tg_frame_limit(const tg_codec *c, const tg_plan *plan, uint32_t slice)
{
    return around(c, tg_body_limit(plan, slice));
}

/* Writes what stands before a body, header and description, to c->front. `len` is that of the frame. */
static void put_front(const tg_codec *c, const tg_plan *plan, uint32_t rank, uint32_t slice, uint64_t step, size_t len)
{
    size_t description_len = c->front_len - TG_FRAME_HEADER;
    uint8_t *at = c->front;
    memcpy(at, magic, sizeof magic);
    tg_put_field(at + 4, 1, TG_FRAME_VERSION);
    tg_put_field(at + 5, 3, plan->holds | (description_len > 0 ? DESCRIBED : 0u));
    tg_put_field(at + 8, 4, rank);
    tg_put_field(at + 12, 4, slice);
    tg_put_field(at + 16, 4, plan->grid->cells);
    tg_put_field(at + 20, 4, description_len);
    tg_put_field(at + 24, 8, len);
    tg_put_field(at + 32, 8, step);
    tg_put_field(at + 40, 8, c->layout->description.fingerprint);
    memcpy(at + TG_FRAME_HEADER, c->layout->description.bytes, description_len);
}

/* Header, description and checksum around a body that is there already. */
static tg_framed enclose(uint8_t *frame, const tg_codec *c, const tg_plan *plan, const tg_body *body, uint32_t slice,
                         uint64_t step)
{
    size_t len = c->front_len + body->len + TG_FRAME_CHECKSUM;
    put_front(c, plan, plan->rank, slice, step, len);
    c->executor->seal(c->run, plan, slice, body, frame, c->front, c->front_len);
    return (tg_framed){.len = len, .payload_len = body->payload_len};
}

tg_status tg_frame_write(tg_framed *out, tg_codec *c, const tg_plan *plan, uint8_t *const *dst, uint32_t from,
                         uint32_t to, uint64_t step, const tg_source *source, tg_detail *why)
{
    for (uint32_t s = from; s < to; s++) {
        c->bodies[s - from] =
            (tg_body){.bytes = dst[s - from] + c->front_len, .hashes = c->hashes + plan->grid->first[s] + 2 * s};
    }
    TG_TRY(c->executor->write(c->bodies, c->run, plan, from, to, source, why));
    for (uint32_t s = from; s < to; s++) {
        out[s - from] = enclose(dst[s - from], c, plan, &c->bodies[s - from], s, step);
    }
    return c->executor->verdict(c->run, source, why);
}

size_t tg_encode_bound(const tg_codec *c)
{
    return c == NULL ? 0 : c->bound;
}

tg_status tg_encode(size_t *dst_len, tg_codec *c, void *dst, size_t dst_cap, uint64_t step, const void *const *grads,
                    tg_detail *why)
{
    TG_NEED(dst_len, why);
    TG_NEED(c, why);
    TG_NEED(dst, why);
    if (c->only_decodes) {
        return tg_fail(TG_E_ARGUMENT, why, "this codec was made from a frame and only decodes");
    }
    if (dst_cap < tg_encode_bound(c)) {
        return tg_fail(TG_E_SPACE, why, "the destination has %zu bytes, and a frame may need %zu", dst_cap,
                       tg_encode_bound(c));
    }
    TG_TRY(tg_check_grads(c, grads, dst, why));
    tg_source source = {.grads = grads};
    uint8_t *frame = dst;
    tg_framed framed;
    TG_TRY(c->executor->select(c->run, 0, step, &source, why));
    TG_TRY(tg_frame_write(&framed, c, c->plan, &frame, 0, 1, step, &source, why));
    c->executor->commit(c->run);
    *dst_len = framed.len;
    return TG_OK;
}

/* ---- reading ----------------------------------------------------------------------------------------------------------- */

static const char *held(unsigned flags)
{
    return flags == HAS_BOTH ? "indices and values" : flags == TG_HAS_INDICES ? "indices alone" : "values alone";
}

static tg_status check_header(const header *h, const tg_codec *c, const tg_expected *e, tg_detail *why)
{
    if (h->fingerprint != c->layout->description.fingerprint) {
        return tg_fail(TG_E_MISMATCH, why, "the frame was made for other tensors, another recipe or another seed");
    }
    if ((h->flags & HAS_BOTH) != (int)e->plan->holds) {
        return tg_fail(TG_E_MISMATCH, why, "the frame holds %s, and %s expected", held(h->flags & HAS_BOTH),
                       e->plan->holds == HAS_BOTH ? "indices and values are" : "something else is");
    }
    if (h->slice != e->slice || h->slices != e->plan->grid->cells) {
        return tg_fail(TG_E_MISMATCH, why, "the frame is slice %u of %u, and slice %u of %u is expected", h->slice,
                       h->slices, e->slice, e->plan->grid->cells);
    }
    if (e->check_author && (h->rank != e->rank || h->step != e->step)) {
        return tg_fail(TG_E_MISMATCH, why,
                       "the frame is of rank %u at step %" PRIu64 ", and rank %u at step %" PRIu64 " is expected",
                       h->rank, h->step, e->rank, e->step);
    }
    return TG_OK;
}

static void fill_info(tg_frame_info *info, const header *h, const tg_view *views, const tg_expected *e,
                      uint64_t checksum)
{
    const tg_grid *grid = e->plan->grid;
    *info = (tg_frame_info){.version = h->version,
                            .rank = h->rank,
                            .slice = h->slice,
                            .slices = h->slices,
                            .step = h->step,
                            .checksum = checksum,
                            .fingerprint = h->fingerprint};
    for (size_t i = grid->first[e->slice]; i < grid->first[e->slice + 1]; i++, views++) {
        info->payload_len += views->len;
        info->index_len += views->index_len;
        info->entry_n += views->count;
        info->element_n += grid->chunks[i].n;
    }
    info->header_len = h->frame_len - info->payload_len;
}

/* Checks what stands before the body, whose hash goes to *hash; the body's bytes go to view->bytes. */
static tg_status read_front(header *h, uint64_t *hash, tg_body_view *view, tg_codec *c, const tg_expected *e,
                            const uint8_t *src, size_t src_len, tg_detail *why)
{
    const uint8_t *front = NULL;
    size_t header_len = src_len < TG_FRAME_HEADER ? src_len : TG_FRAME_HEADER;
    if (c->executor->is_paper) { /* there are no bytes to check */
        view->bytes = src + TG_FRAME_HEADER;
        return TG_OK;
    }
    TG_TRY(c->executor->fetch(&front, c->front, c->device, c->run, src, header_len, why));
    TG_TRY(get_header(h, front, src_len, why));
    TG_TRY(check_header(h, c, e, why));
    if ((h->flags & DESCRIBED) != 0 && h->description_len != c->layout->description.len) {
        return tg_fail(TG_E_FRAME, why, "the frame is damaged: its description has the wrong length");
    }
    if (h->description_len != 0) {
        TG_TRY(c->executor->fetch(&front, c->front, c->device, c->run, src, TG_FRAME_HEADER + h->description_len, why));
    }
    if (h->description_len != 0 && tg_hash(front + TG_FRAME_HEADER, h->description_len) != h->fingerprint) {
        return tg_fail(TG_E_FRAME, why, "the frame is damaged: its description is not what its fingerprint says");
    }
    *hash = TG_LITTLE64(tg_hash(front, TG_FRAME_HEADER + h->description_len));
    if ((e->plan->holds & TG_HAS_VALUES) != 0 && c->plan->has_draws) {
        c->executor->draw(c->run, e->slice / e->plan->grid->slices, h->step);
    }
    view->bytes = src + TG_FRAME_HEADER + h->description_len;
    return TG_OK;
}

static size_t body_len_of(const tg_body_view *view, const uint8_t *src, size_t src_len)
{
    return src_len - (size_t)(view->bytes - src) - TG_FRAME_CHECKSUM;
}

/* The checksum of a frame: the hash of the hashes of what stands before the body, of headers, and of all chunks. */
static uint64_t checksum_of(const uint64_t *hashes, const tg_expected *e)
{
    const tg_grid *grid = e->plan->grid;
    return tg_hash(hashes, (2 + grid->first[e->slice + 1] - grid->first[e->slice]) * sizeof *hashes);
}

static bool is_checksum(uint64_t checksum, const tg_codec *c, const uint8_t *src, size_t src_len)
{
    const uint8_t *at = NULL;
    if (c->executor->is_paper) {
        return true;
    }
    tg_status status = c->executor->fetch(&at, c->front, c->device, c->run, src + src_len - TG_FRAME_CHECKSUM,
                                          TG_FRAME_CHECKSUM, NULL);
    return status == TG_OK && checksum == tg_get_field(at, TG_FRAME_CHECKSUM);
}

tg_status tg_frame_read(tg_body_view *view, tg_frame_info *info, tg_codec *c, const tg_expected *e, const uint8_t *src,
                        size_t src_len, tg_detail *why)
{
    header h = {0};
    if (c->executor->expect != NULL) {
        c->executor->expect(c->run, e->plan, e->slice, src, src_len, c->front_len);
    }
    TG_TRY(read_front(&h, &c->hashes[0], view, c, e, src, src_len, why));
    TG_TRY(c->executor->check(view, c->hashes + 1, c->run, e->plan, e->slice, body_len_of(view, src, src_len), why));
    uint64_t checksum = checksum_of(c->hashes, e);
    if (!is_checksum(checksum, c, src, src_len)) {
        return tg_fail(TG_E_FRAME, why, "the frame is damaged: its checksum does not match");
    }
    if (info != NULL) {
        fill_info(info, &h, view->chunks, e, checksum);
    }
    return TG_OK;
}

tg_status tg_frame_recall(tg_body_view *view, tg_codec *c, const tg_expected *e, const uint8_t *src, size_t src_len,
                          tg_detail *why)
{
    if (c->executor->recall == NULL) {
        return tg_frame_read(view, NULL, c, e, src, src_len, why);
    }
    view->bytes = src + c->front_len;
    c->executor->recall(view, c->run, e->slice);
    return TG_OK;
}

tg_status tg_frame_find(tg_body_view *view, tg_codec *c, const tg_expected *e, const uint8_t *src, size_t src_len,
                        tg_detail *why)
{
    header h = {0};
    if (c->executor->expect != NULL) { /* another message may have been where this one is */
        c->executor->expect(c->run, e->plan, e->slice, NULL, 0, 0);
    }
    TG_TRY(read_front(&h, &view->hashes[0], view, c, e, src, src_len, why));
    return c->executor->find(view, c->run, e->plan, e->slice, body_len_of(view, src, src_len), why);
}

tg_status tg_frame_foresee(tg_body_view *view, tg_codec *c, const tg_expected *e, const uint8_t *src, size_t src_len,
                           tg_detail *why)
{
    if (src_len < c->front_len + TG_FRAME_CHECKSUM) {
        return tg_fail(TG_E_FRAME, why, "the frame is cut off");
    }
    put_front(c, e->plan, e->rank, e->slice, e->step, src_len);
    view->hashes[0] = TG_LITTLE64(tg_hash(c->front, c->front_len));
    view->bytes = src + c->front_len;
    return c->executor->find(view, c->run, e->plan, e->slice, body_len_of(view, src, src_len), why);
}

bool tg_frame_is_intact(const tg_body_view *view, const tg_codec *c, const tg_expected *e, const uint8_t *src,
                        size_t src_len)
{
    return is_checksum(checksum_of(view->hashes, e), c, src, src_len);
}

/* A frame of the whole model, as tg_encode writes it. */
static tg_status read_whole(tg_body_view *view, tg_frame_info *info, tg_codec *c, const void *src, size_t src_len,
                            tg_detail *why)
{
    if (src == NULL) {
        return tg_fail(TG_E_ARGUMENT, why, "no frame is given");
    }
    tg_expected expected = {.plan = c->plan};
    *view = (tg_body_view){.chunks = c->views, .keeps = 1};
    TG_TRY(tg_frame_read(view, info, c, &expected, src, src_len, why));
    c->executor->note(c->run, 0, view);
    return TG_OK;
}

tg_status tg_frame_inspect(tg_frame_info *info, tg_codec *c, const void *src, size_t src_len, tg_detail *why)
{
    tg_body_view view;
    TG_NEED(info, why);
    TG_NEED(c, why);
    return read_whole(&view, info, c, src, src_len, why);
}

tg_status tg_decode_add(tg_codec *c, float *const *sums, float weight, const void *src, size_t src_len, tg_detail *why)
{
    tg_body_view view;
    TG_NEED(c, why);
    TG_TRY(tg_check_grads(c, (const void *const *)sums, NULL, why));
    tg_sink sink = {.added = sums, .weight = weight};
    if (c->executor->add_if_sound != NULL && src != NULL) {
        bool is_done = false;
        put_front(c, c->plan, 0, 0, 0, src_len);
        TG_TRY(c->executor->add_if_sound(&is_done, c->run, c->plan, src, src_len, c->front, c->front_len, &sink, why));
        if (is_done) {
            return TG_OK;
        }
    }
    TG_TRY(read_whole(&view, NULL, c, src, src_len, why));
    c->executor->sum(c->run, 0, &view, 1, &sink);
    return TG_OK;
}

tg_status tg_decode_add_private(tg_codec *c, float *const *sums, float weight, const void *src, size_t src_len,
                                tg_detail *why)
{
    TG_NEED(c, why);
    if (c->executor->add_if_sound != NULL) { /* which is faster than to ask for hashes */
        return tg_decode_add(c, sums, weight, src, src_len, why);
    }
    TG_TRY(tg_check_grads(c, (const void *const *)sums, NULL, why));
    if (src == NULL) {
        return tg_fail(TG_E_ARGUMENT, why, "no frame is given");
    }
    tg_expected expected = {.plan = c->plan};
    tg_body_view view = {.chunks = c->views, .hashes = c->hashes};
    tg_sink sink = {.added = sums, .weight = weight};
    TG_TRY(tg_frame_find(&view, c, &expected, src, src_len, why));
    bool sound = c->executor->sum_unchecked(c->run, 0, &view, 1, &sink);
    if (!sound || !tg_frame_is_intact(&view, c, &expected, src, src_len)) {
        TG_TRY(tg_frame_read(&view, NULL, c, &expected, src, src_len, why));
        return tg_fail(TG_E_FRAME, why, TG_FRAME_CHANGED);
    }
    c->executor->note(c->run, 0, &view);
    return TG_OK;
}

tg_status tg_decode(tg_codec *c, void *const *out, const void *src, size_t src_len, tg_detail *why)
{
    tg_body_view view;
    TG_NEED(c, why);
    TG_TRY(tg_check_grads(c, (const void *const *)out, NULL, why));
    TG_TRY(read_whole(&view, NULL, c, src, src_len, why));
    tg_sink sink = {.averages = out, .divisor = 1.0f};
    c->executor->sum(c->run, 0, &view, 1, &sink);
    return TG_OK;
}

/* What a frame may claim to hold before it is taken for a bomb: no gradient worth sending is that sparse. */
#define ELEMENTS_PER_BYTE (UINT64_C(1) << 24)

/* The layout that the description of a frame describes. */
static tg_status read_description(tg_layout **out, const header *h, const uint8_t *at, const tg_executor *executor,
                                  const tg_options *opt, tg_detail *why)
{
    tg_allocator a = tg_allocator_or_standard(opt->allocator);
    uint8_t *space = NULL;
    const uint8_t *description = NULL;
    TG_TRY(tg_acquire(&space, &a, opt->device != NULL ? h->description_len : 0, 1, why));
    tg_status status = executor->fetch(&description, space, opt->device, NULL, at, h->description_len, why);
    if (status == TG_OK && tg_hash(description, h->description_len) != h->fingerprint) {
        status = tg_fail(TG_E_FRAME, why, "the frame is damaged: its description is not what its fingerprint says");
    }
    if (status == TG_OK) {
        status = tg_layout_from_description(out, description, h->description_len, &a, why);
    }
    tg_release(&a, space);
    return status;
}

tg_status tg_codec_from_frame(tg_codec **out, tg_frame_info *info, const void *src, size_t src_len,
                              const tg_options *opt, tg_detail *why)
{
    tg_options own = TG_OPTIONS_INIT, given;
    header h = {0};
    TG_NEED(out, why);
    TG_TRY(tg_options_read(&given, opt, why));
    own.allocator = given.allocator;
    own.threads = given.threads;
    own.device = given.device;
    if (src == NULL) {
        return tg_fail(TG_E_ARGUMENT, why, "no frame is given");
    }
    const tg_executor *executor = given.device != NULL ? given.device->executor : &tg_executor_host;
    uint8_t space[TG_FRAME_HEADER];
    const uint8_t *front = NULL;
    size_t header_len = src_len < TG_FRAME_HEADER ? src_len : TG_FRAME_HEADER;
    TG_TRY(executor->fetch(&front, space, given.device, NULL, src, header_len, why));
    TG_TRY(get_header(&h, front, src_len, why));
    if ((h.flags & DESCRIBED) == 0) {
        return tg_fail(TG_E_MISMATCH, why,
                       "the frame does not describe itself; only the ranks that exchange it can read it");
    }
    tg_layout *layout = NULL;
    tg_codec *c = NULL;
    TG_TRY(read_description(&layout, &h, (const uint8_t *)src + TG_FRAME_HEADER, executor, &own, why));
    bool too_short = tg_body_least(layout) > src_len;
    if (too_short || layout->element_n / ELEMENTS_PER_BYTE > src_len) {
        tg_status refused = tg_fail(TG_E_FRAME, why, "the frame claims %" PRIu64 " elements in %zu bytes, which %s",
                                    layout->element_n, src_len, too_short ? "cannot hold them" : "no real one does");
        tg_layout_free(layout);
        return refused;
    }
    const tg_codec_purpose purpose = {.slices = 1, .holds = HAS_BOTH, .only_decodes = true};
    tg_body_view view;
    TG_TRY(tg_codec_make(&c, layout, &purpose, &own, why));
    tg_status status = read_whole(&view, info, c, src, src_len, why);
    if (status != TG_OK) {
        tg_codec_free(c);
        return status;
    }
    *out = c;
    return TG_OK;
}
