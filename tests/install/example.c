/* The smallest client: one tensor through a codec and back. It uses what is installed and nothing else, and is legal
 * C11 and C++11, so that an installation can be tried with either. */
#include <tersegrad/tersegrad.h>

#include <stdio.h>
#include <stdlib.h>

#define N 4096

static int fail(const char *what, const tg_detail *why)
{
    fprintf(stderr, "%s: %s\n", what, why->text);
    return EXIT_FAILURE;
}

/* Encodes the gradient, decodes the frame, and compares: top-k sends some entries, and those are the largest. */
static int round_trip(tg_codec *codec, unsigned char *frame, size_t frame_cap)
{
    static float gradient[N], decoded[N];
    for (int i = 0; i < N; i++) {
        gradient[i] = (float)(i % 100 == 0 ? i + 1 : 0);
    }

    /* A codec takes one pointer a tensor; there is one tensor here. */
    const void *const grads[1] = {gradient};
    void *const out[1] = {decoded};
    tg_detail why;
    size_t frame_len = 0;
    if (tg_encode(&frame_len, codec, frame, frame_cap, 0, grads, &why) != TG_OK) {
        return fail("encode", &why);
    }
    if (tg_decode(codec, out, frame, frame_len, &why) != TG_OK) {
        return fail("decode", &why);
    }

    /* 41 entries are not zero, and a hundredth of 4096 is 40.96, rounded up: all of them come back as they were. */
    for (int i = 0; i < N; i++) {
        if (decoded[i] < gradient[i] || decoded[i] > gradient[i]) {
            fprintf(stderr, "entry %d was %g and came back as %g\n", i, (double)gradient[i], (double)decoded[i]);
            return EXIT_FAILURE;
        }
    }
    printf("tersegrad %s: %zu bytes of gradient in a frame of %zu, %.1f times smaller\n", tg_version(), sizeof gradient,
           frame_len, (double)sizeof gradient / (double)frame_len);
    return EXIT_SUCCESS;
}

int main(void)
{
    /* The model: names and shapes must be the same wherever frames are read. */
    const uint64_t dims[2] = {64, N / 64};
    const tg_tensor tensor = {"layer.weight", dims, 2, TG_DENSE, TG_FP32};

    /* Keep the largest hundredth, and remember the rest for the next step. */
    tg_codec *codec = NULL;
    tg_detail why;
    if (tg_codec_new(&codec, "ef+topk@0.01", &tensor, 1, NULL, &why) != TG_OK) {
        return fail("codec", &why);
    }

    /* The bound is the same for every step, so a training loop asks once. */
    size_t frame_cap = tg_encode_bound(codec);
    unsigned char *frame = (unsigned char *)malloc(frame_cap);
    int code = EXIT_FAILURE;
    if (frame != NULL) {
        code = round_trip(codec, frame, frame_cap);
    }
    free(frame);
    tg_codec_free(codec);
    return code;
}
