/* Error messages of the data sets. */
#ifndef TR_DATA_REFUSE_H
#define TR_DATA_REFUSE_H

#include "data.h"

/* Formats an error message into `why`. Returns -1. */
__attribute__((format(printf, 2, 3))) int tr_data_refuse(char why[TR_WHY], const char *format, ...);

int tr_data_refuse_memory(char why[TR_WHY]);

#endif
