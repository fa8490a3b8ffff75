/* Counters of the trial targets: accepted and refused inputs. A trial in which either is rare tests little. */
#ifndef TG_FUZZ_TRIAL_H
#define TG_FUZZ_TRIAL_H

#include <stdint.h>

extern uint64_t fuzz_accepted_n, fuzz_refused_n;

#endif
