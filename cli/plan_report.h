/* How `tersegrad plan` tells what it has found. */
#ifndef CLI_PLAN_REPORT_H
#define CLI_PLAN_REPORT_H

#include "args.h"
#include "plan_run.h"

/* What was put in, and where it is from. */
typedef struct cli_plan_facts {
    const char *model; /* as text */
    const char *from;  /* of the costs: "measured on this machine just now", or "measured, FILE" */
    double seconds;    /* that measuring has taken; 0: none */
} cli_plan_facts;

int cli_plan_print(const cli_plan *p, const cli_plan_facts *f);
int cli_plan_json(FILE *out, const cli_args *args, const cli_plan *p, const cli_plan_facts *f);
int cli_plan_page(const cli_args *args, const cli_plan *p, const cli_plan_facts *f);

#endif
