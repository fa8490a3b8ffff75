/* No feedback: what is not sent is forgotten. */
#include "feedback/feedback.h"

const tg_feedback_part tg_feedback_none = {
    .part = {.name = "none", .summary = "what is not sent is forgotten"},
};
