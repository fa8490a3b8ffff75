/* Error messages; see refuse.h. Messages that are too long are truncated. */
#include "data/refuse.h"

#include <stdarg.h>
#include <stdio.h>

int tr_data_refuse(char why[TR_WHY], const char *format, ...)
{
    va_list values;
    va_start(values, format);
    (void)vsnprintf(why, TR_WHY, format, values);
    va_end(values);
    return -1;
}

int tr_data_refuse_memory(char why[TR_WHY])
{
    return tr_data_refuse(why, "there is not enough memory for the data set");
}
