/* Checks that must hold for any input of the frame reader. */
#include "frame_check.h"

#include "base/half.h"
#include "frame/frame.h"

#include <math.h>
#include <string.h>

/* ---- buffers of tensors --------------------------------------------------------------------------------------------- */

typedef enum buffer_kind { BY_DTYPE, IN_FP32 } buffer_kind;

static tg_tensor tensor_of(const tg_codec *c, size_t t, uint64_t *element_n)
{
    tg_tensor tensor;
    tg_detail why;
    PROMISE(tg_codec_tensor(&tensor, c, t, &why) == TG_OK, "a codec knows its tensors");
    PROMISE(tg_tensor_elements(element_n, &tensor, &why) == TG_OK, "the tensors of a codec are sound");
    return tensor;
}

static void **buffers_new(const tg_codec *c, buffer_kind kind, int fill)
{
    size_t tensor_n = tg_codec_tensors(c);
    void **buffers = fuzz_room(tensor_n * sizeof *buffers, 0);
    for (size_t t = 0; t < tensor_n; t++) {
        uint64_t n = 0;
        tg_tensor tensor = tensor_of(c, t, &n);
        buffers[t] = fuzz_room((size_t)n * (kind == IN_FP32 ? sizeof(float) : tg_dtype_len(tensor.dtype)), fill);
    }
    return buffers;
}

static void buffers_free(const tg_codec *c, void **buffers)
{
    for (size_t t = 0; t < tg_codec_tensors(c); t++) {
        free(buffers[t]);
    }
    free(buffers);
}

/* ---- decoding ------------------------------------------------------------------------------------------------------- */

/* The value of an element, and of a sum rounded to the same dtype. */
static float decoded_value(const void *elements, tg_dtype dtype, uint64_t i)
{
    switch (dtype) {
    case TG_FP32: return ((const float *)elements)[i];
    case TG_FP16: return tg_fp16_to_float(((const uint16_t *)elements)[i]);
    case TG_BF16: return tg_bf16_to_float(((const uint16_t *)elements)[i]);
    }
    PROMISE(false, "a tensor has one of the three dtypes");
    return 0;
}

static float rounded_value(float sum, tg_dtype dtype)
{
    switch (dtype) {
    case TG_FP32: return sum;
    case TG_FP16: return tg_fp16_to_float(tg_float_to_fp16(sum));
    case TG_BF16: return tg_bf16_to_float(tg_float_to_bf16(sum));
    }
    return 0;
}

static void compare_tensor(const tg_codec *c, size_t t, const void *once, const void *again, const float *sum)
{
    uint64_t n = 0;
    tg_dtype dtype = tensor_of(c, t, &n).dtype;
    PROMISE(memcmp(once, again, (size_t)n * tg_dtype_len(dtype)) == 0,
            "decoding twice gives the same bits, whatever was there before");
    for (uint64_t i = 0; i < n; i++) {
        float value = decoded_value(once, dtype, i), added = rounded_value(sum[i], dtype);
        PROMISE(value == added || (isnan(value) && isnan(added)), "decoding and adding to zeros give the same values");
    }
}

static void check_decoding(tg_codec *c, const uint8_t *data, size_t len)
{
    tg_detail why;
    void **once = buffers_new(c, BY_DTYPE, 0x00);
    void **again = buffers_new(c, BY_DTYPE, 0xff); /* other bits, to detect elements that are not written */
    void **sums = buffers_new(c, IN_FP32, 0x00);
    float **sums_fp32 = fuzz_room(tg_codec_tensors(c) * sizeof *sums_fp32, 0);
    for (size_t t = 0; t < tg_codec_tensors(c); t++) {
        sums_fp32[t] = sums[t];
    }
    PROMISE(tg_decode(c, once, data, len, &why) == TG_OK, "a frame that was accepted decodes");
    PROMISE(tg_decode(c, again, data, len, &why) == TG_OK, "a frame that was decoded decodes again");
    PROMISE(tg_decode_add(c, sums_fp32, 1.0f, data, len, &why) == TG_OK, "a frame that was accepted adds");
    for (size_t t = 0; t < tg_codec_tensors(c); t++) {
        compare_tensor(c, t, once[t], again[t], sums[t]);
    }
    free(sums_fp32);
    buffers_free(c, sums);
    buffers_free(c, again);
    buffers_free(c, once);
}

/* ---- the whole ------------------------------------------------------------------------------------------------------ */

/* The length of a frame without its payload: header, description, checksum, and the headers of chunks with explicit indices or coded
 * values. */
static uint64_t expected_header_len(const tg_codec *c)
{
    return TG_FRAME_HEADER + c->layout->description.len + c->plan->headers_len[0] + TG_FRAME_CHECKSUM;
}

static void check_info(tg_codec *c, const tg_frame_info *info, const uint8_t *data, size_t len)
{
    tg_detail why;
    tg_frame_info inspected;
    memset(&inspected, 0, sizeof inspected);
    PROMISE(tg_frame_inspect(&inspected, c, data, len, &why) == TG_OK, "a frame that was accepted can be inspected");
    PROMISE(memcmp(&inspected, info, sizeof inspected) == 0, "a frame says the same of itself each time");
    PROMISE(info->header_len == expected_header_len(c) && info->payload_len == len - info->header_len,
            "every byte of a frame has its meaning");
    PROMISE(info->index_len <= info->payload_len, "indices are part of the payload");
    PROMISE(info->entry_n <= info->element_n, "no more is sent than there is");
    PROMISE(info->slice < info->slices, "a slice is one of its number");
    uint64_t element_n = 0;
    for (size_t t = 0; t < tg_codec_tensors(c); t++) {
        uint64_t n = 0;
        (void)tensor_of(c, t, &n);
        element_n += n;
    }
    PROMISE(element_n == info->element_n, "a frame stands for all elements of its tensors");
}

size_t fuzz_frame_budget(void)
{
    return sizeof(tg_scratch) + sizeof(tg_chunk_scratch) + (4 << 20);
}

bool fuzz_check_frame(const uint8_t *data, size_t len)
{
    fuzz_budget budget;
    fuzz_budget_start(&budget, fuzz_frame_budget());
    tg_options options = TG_OPTIONS_INIT;
    options.allocator = &budget.allocator;
    tg_codec *c = NULL;
    tg_frame_info info;
    memset(&info, 0, sizeof info);
    tg_detail why;
    memset(&why, 'x', sizeof why);
    bool accepted = tg_codec_from_frame(&c, &info, data, len, &options, &why) == TG_OK;
    if (accepted) {
        check_info(c, &info, data, len);
        if (info.element_n <= FUZZ_ELEMENT_MAX) {
            check_decoding(c, data, len);
        }
    } else {
        PROMISE(c == NULL, "a failure writes no output");
        fuzz_check_sentence(why.text, sizeof why.text);
    }
    tg_codec_free(c);
    PROMISE(budget.held == 0, "all memory is given back");
    return accepted;
}
