/* Any bytes as a frame whose header, fingerprint and checksum are repaired first, so that the description, the chunks and their
 * indices are reached. docs/format.md, sections 1 and 6, describes the repaired fields. */
#include "base/bytes.h"
#include "frame/frame.h"
#include "frame_check.h"
#include "frame_mutate.h"
#include "kernels/hash.h"

#include <string.h>

enum { DESCRIBED = 1, FLAGS = DESCRIBED | TG_HAS_INDICES | TG_HAS_VALUES };

/* The parts of a frame. */
typedef struct parts {
    uint8_t *frame, *description;
    size_t len, description_len;
} parts;

/* All of the header but rank, step and the length of the description, which any frame may choose. */
static void repair_header(const parts *p)
{
    memcpy(p->frame, "TGFR", 4);
    p->frame[4] = TG_FRAME_VERSION;
    p->frame[5] = FLAGS;
    tg_put16(p->frame + 6, 0);
    p->frame[11] &= 0x7f;       /* ranks end before 2^32 */
    tg_put32(p->frame + 12, 0); /* slice 0 ... */
    tg_put32(p->frame + 16, 1); /* ... of 1 */
    tg_put64(p->frame + 24, p->len);
    tg_put64(p->frame + 40, tg_hash(p->description, p->description_len));
}

static void reseal_and_check(const parts *p)
{
    fuzz_budget budget;
    fuzz_budget_start(&budget, fuzz_frame_budget());
    tg_options options = TG_OPTIONS_INIT;
    options.allocator = &budget.allocator;
    tg_layout *layout = NULL;
    tg_codec *c = NULL;
    bool sealed = false;
    if (tg_layout_from_description(&layout, p->description, p->description_len, &budget.allocator, NULL) == TG_OK) {
        if (layout->element_n > FUZZ_ELEMENT_MAX) { /* would be slow */
            tg_layout_free(layout);
            (void)fuzz_check_frame(p->frame, p->len);
            return;
        }
        if (tg_codec_make(&c, layout, &fuzz_whole_purpose, &options, NULL) == TG_OK) {
            fuzz_frame_shape whole = fuzz_frame_whole(c);
            sealed = fuzz_frame_seal(p->frame, p->len, p->description_len, &whole);
        }
    }
    tg_codec_free(c);
    PROMISE(fuzz_check_frame(p->frame, p->len) == sealed, "a frame is accepted exactly if its chunks are sound");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (len < TG_FRAME_HEADER + TG_FRAME_CHECKSUM) {
        return 0;
    }
    size_t room = len - TG_FRAME_HEADER - TG_FRAME_CHECKSUM;
    parts p = {.frame = fuzz_room(len, 0), .len = len, .description_len = tg_get32(data + 20)};
    memcpy(p.frame, data, len);
    if (p.description_len <= room) {
        p.description = p.frame + TG_FRAME_HEADER;
        repair_header(&p);
        reseal_and_check(&p);
    }
    free(p.frame);
    return 0;
}
