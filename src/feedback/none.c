/* No feedback: what is not sent is dropped. */
#include "feedback/feedback.h"

const tg_feedback_part tg_feedback_none = {
    .part = {.name = "none", .summary = "no feedback: what is not sent is dropped"},
};
