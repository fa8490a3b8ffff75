/* The one way in which the data sets say no. */
#ifndef TR_DATA_REFUSE_H
#define TR_DATA_REFUSE_H

#include "data.h"

/* Puts a sentence into `why` and gives -1. */
__attribute__((format(printf, 2, 3))) int tr_data_refuse(char why[TR_WHY], const char *format, ...);

int tr_data_refuse_memory(char why[TR_WHY]);

#endif
