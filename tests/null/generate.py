"""Writes a C test that calls every function of the public headers with NULL for each of its pointers in turn.

    python3 generate.py OUT.c HEADER.h...

The rule is in tersegrad.h, "How to read the declarations". A declaration that is not understood, a parameter without a valid value
and an entry of the tables below that no declaration uses are errors, so that no function is left out.
"""

import pathlib
import re
import sys

# Valid arguments, as members of the fixture (fixture.h): by function and parameter, or by type and name for all functions.
VALUES = {
    "tg_detail *why": "&f->why",
    "const char *recipe": '"ef+topk@0.1"',
    "const tg_tensor *tensors": "&f->tensor",
    "size_t tensor_n": "1",
    "const tg_tensor *tensor": "&f->tensor",
    "size_t tensor": "0",
    "size_t group": "0",
    "size_t index": "f->part",
    "size_t parameter": "0",
    "tg_dtype dtype": "TG_FP16",
    "size_t n": "FIXTURE_N",
    "const tg_options *opt": "&f->options",
    "const tg_allocator *allocator": "&f->allocator",
    "tg_codec *c": "f->codec",
    "const tg_codec *c": "f->codec",
    "uint64_t step": "1",
    "uint32_t rank": "0",
    "uint32_t world": "1",
    "uint32_t timeout_ms": "1000",
    "float weight": "1.0f",
    "const void *const *grads": "(const void *const *)f->rows",
    "void *const *grads": "f->rows",
    "float *const *sums": "f->sums",
    "const void *src": "f->frame",
    "size_t src_len": "f->frame_len",
    "tg_frame_info *info": "&f->info",
    "tg_exchange *x": "f->exchange",
    "const tg_exchange *x": "f->exchange",
    "tg_op *op": "&f->op",
    "tg_meter *last": "&f->meter",
    "tg_meter *total": "&f->meter",
    "tg_traffic *out": "&f->traffic",
    "tg_link *link": "tg_threads_link(f->threads, 0)",
    "tg_threads *t": "f->threads",
    "tg_reducer *r": "f->reducer",
    "tg_reducer_new.out": "&f->made.reducer",
    "tg_reducer_ready_all.tensors": "f->numbers",
    "tg_recipe_canonical.out": "f->text",
    "tg_part_list.out": "&f->part_info",
    "tg_part_parameter.out": "&f->parameter_info",
    "tg_tensor_elements.out": "&f->elements",
    "tg_widen.out": "f->sum",
    "tg_widen.src": "f->halves",
    "tg_narrow.out": "f->halves",
    "tg_narrow.src": "f->sum",
    "tg_name_matches.pattern": '"*"',
    "tg_name_matches.name": '"weight"',
    "tg_codec_new.out": "&f->made.codec",
    "tg_encode.dst_len": "&f->made_len",
    "tg_encode.dst": "f->made_frame",
    "tg_encode.dst_cap": "f->frame_cap",
    "tg_decode.out": "f->rows",
    "tg_codec_residual.out": "f->sum",
    "tg_codec_from_frame.out": "&f->made.codec",
    "tg_codec_tensor.out": "&f->made_tensor",
    "tg_exchange_new.out": "&f->made.exchange",
    "tg_exchange_learning.out": "&f->learning",
    "tg_exchange_residual.out": "f->sum",
    "tg_state_save.dst": "f->state",
    "tg_state_save.dst_cap": "f->state_len",
    "tg_state_load.states": "&f->span",
    "tg_state_load.state_n": "1",
    "tg_exchange_adopt.left": "f->sums",
    "tg_exchange_adopt.from": "f->other",
    "tg_handshake.facts": '"colour red\\n"',
    "tg_slice.first": "&f->elements",
    "tg_slice.slice_n": "&f->elements",
    "tg_slice.n": "FIXTURE_N",
    "tg_slice.slice": "1",
    "tg_slice.slices": "3",
    "tg_scatter_new.out": "&f->made.exchange",
    "tg_scatter_new.recipe": '"fp16"',
    "tg_scatter_begin.x": "f->scattered",
    "tg_scatter_end.x": "f->scattered",
    "tg_scatter_end.out": "f->rows",
    "tg_reduce_scatter.x": "f->scattered",
    "tg_reduce_scatter.out": "f->rows",
    "const void *const *inputs": "(const void *const *)f->rows",
    "float divisor": "1.0f",
    "tg_threads_new.out": "&f->made.threads",
    "tg_lockstep_reduce.outcomes": "&f->outcome",
    "tg_lockstep_reduce.ranks": "&f->exchange",
    "tg_lockstep_reduce.grads": "f->all",
    "tg_lockstep_reduce.tap": "&f->tap",
    "tg_lockstep_begin.takes": "1",
    "tg_lockstep_end.outcomes": "&f->outcome",
    "tg_lockstep_end.ranks": "&f->exchange",
    "tg_lockstep_end.tap": "&f->tap",
    "tg_exchange_outline.out": "&f->outline",
    "tg_exchange_outline.visitor": "&f->visitor",
    "tg_exchange_outline.bits": "f->bits",
    "tg_schedule_read.out": "&f->schedule",
    "tg_schedule_read.text": '"1,9:4"',
    "const tg_schedule *s": "&f->schedule",
    "tg_schedule_round.out": "&f->round",
    "tg_outer_read.out": "&f->outer",
    "tg_outer_read.text": '"nesterov"',
    "const tg_outer *outer": "&f->outer",
    "tg_local_move.move": "f->sum",
    "const float *start": "f->grad",
    "tg_local_move.weights": "f->halves",
    "tg_local_outer.start": "f->sum",
    "tg_local_outer.velocity": "f->velocity",
    "tg_local_outer.average": "f->grad",
    "tg_local_mix.weights": "f->halves",
    "tg_local_mix.keep": "0.5f",
    "tg_status_text.status": "TG_OK",
    "tg_kind_name.kind": "TG_CONV",
    "tg_mpi_new.out": "&f->made.mpi",
    "MPI_Comm comm": "MPI_COMM_WORLD",
    "tg_mpi *m": "f->mpi",
    "const tg_mpi *m": "f->mpi",
}

# Pointers that may be NULL: the call then succeeds all the same.
OPTIONAL = {
    "tg_detail *why",
    "const tg_options *opt",
    "const tg_allocator *allocator",
    "tg_meter *last",
    "tg_meter *total",
    "tg_codec_from_frame.info",
    "tg_exchange_adopt.left",
    "tg_handshake.facts",
    "tg_local_outer.velocity",
    "tg_lockstep_reduce.outcomes",
    "tg_lockstep_reduce.tap",
    "tg_lockstep_end.outcomes",
    "tg_lockstep_end.tap",
    "tg_exchange_outline.bits",
}

BEGIN = "MUST(tg_reducer_begin(f->reducer, 1, f->rows, why));"
BEFORE = {"tg_exchange_next": "MUST(tg_exchange_begin(f->exchange, 1, f->rows, why));",  # a call that another one needs
          "tg_scatter_end": "MUST(tg_scatter_begin(&f->op, f->scattered, 1, (const void *const *)f->rows, why));",
          "tg_reducer_ready": BEGIN, "tg_reducer_ready_all": BEGIN, "tg_reducer_test": BEGIN,
          "tg_reducer_wait": BEGIN + " MUST(tg_reducer_ready(f->reducer, 0, why));"}
RESULT = {"tg_mpi_awaited": "-1"}  # for NULL, where it is not 0 or NULL


class Parameter:
    def __init__(self, function, text):
        found = re.fullmatch(r"(.*?)(\w+)(\[\w+\])?", text.strip())
        if found is None:
            sys.exit(f"generate.py: {function}: the parameter '{text}' is not understood")
        kind, self.name, array = found.groups()
        self.type = kind.strip() + (" *" if array else "")
        self.keys = (f"{function}.{self.name}", f"{self.type}{'' if self.type.endswith('*') else ' '}{self.name}")
        self.is_pointer = self.type.endswith("*")

    def look_up(self, table, used):
        for key in self.keys:
            if key in table:
                used.add(key)
                return key
        return None


class Function:
    def __init__(self, result, name, parameters):
        self.result, self.name = result.strip(), name
        texts = [] if parameters.strip() == "void" else parameters.split(",")
        self.parameters = [Parameter(name, text) for text in texts]

    def call(self, nulls, used):
        arguments = []
        for parameter in self.parameters:
            key = parameter.look_up(VALUES, used)
            if key is None:
                sys.exit(f"generate.py: {self.name}: no valid value of '{parameter.keys[1]}' is known; add one to VALUES")
            arguments.append("NULL" if parameter.name in nulls else VALUES[key])
        return f"{self.name}({', '.join(arguments)})"


def declarations(path):
    text = re.sub(r"/\*.*?\*/", " ", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    text = re.sub(r"^#.*(?:\\\n.*)*", "", text, flags=re.MULTILINE)
    found = [Function(*map(lambda part: " ".join(part.split()), match.groups()))
             for match in re.finditer(r"TG_API\s+([\w\s]+?[\s*]+)(tg_\w+)\s*\(([^()]*)\)\s*(?:TG_CHECKED)?\s*;", text)]
    if len(found) != text.count("TG_API") or not found:
        sys.exit(f"generate.py: {path}: {text.count('TG_API')} functions are declared, and {len(found)} understood")
    return found


def checks(function, used):
    """(name of the case, statements) of one function."""
    if not function.name.endswith("_free"):  # every other test frees something
        call = function.call((), used)
        yield "none", f"assert_true({call} >= 0);" if function.result == "tg_status" else f"(void){call};"
    for parameter in function.parameters:
        if not parameter.is_pointer:
            continue
        optional = parameter.look_up(OPTIONAL, used) is not None
        call = function.call((parameter.name,), used)
        if function.result == "tg_status" and optional:
            yield parameter.name, f"assert_true({call} >= 0);"
        elif function.result == "tg_status":
            silent = function.call((parameter.name, "why"), used)
            yield parameter.name, (f"assert_int_equal({call}, TG_E_ARGUMENT);\n    assert_true(f->why.text[0] != '\\0');\n"
                                   f"    assert_int_equal({silent}, TG_E_ARGUMENT);")
        elif function.result == "void":
            yield parameter.name, f"{call};"
        elif function.result.endswith("*"):
            yield parameter.name, f"assert_null({call});"
        else:
            yield parameter.name, f"assert_int_equal({call}, {RESULT.get(function.name, '0')});"


def main():
    out, headers = pathlib.Path(sys.argv[1]), [pathlib.Path(name) for name in sys.argv[2:]]
    used, functions, tests, lines = set(), [], [], []
    for header in headers:
        functions += declarations(header)
        lines.append(f"#include <tersegrad/{header.name}>")
    lines = ["/* Written by tests/null/generate.py. */", *lines, '#include "null/fixture.h"', ""]
    for function in functions:
        for case, statements in checks(function, used):
            name = f"{function.name}__{case}"
            tests.append(name)
            before = f"    {BEFORE[function.name]}\n" if function.name in BEFORE else ""
            lines.append(f"static void {name}(void **state)\n{{\n    fixture *f = *state;\n    (void)f;\n{before}    {statements}\n}}\n")
    if any(header.name == "tersegrad.h" for header in headers) and any(header.name == "mpi.h" for header in headers):
        unused = (VALUES.keys() | OPTIONAL) - used
        if unused:
            sys.exit(f"generate.py: no function has {', '.join(sorted(unused))}")
    lines.append("int run_generated(void)\n{\n    const struct CMUnitTest tests[] = {")
    lines += [f"        cmocka_unit_test_setup_teardown({name}, fixture_begin, fixture_end)," for name in tests]
    lines.append("    };\n    return cmocka_run_group_tests(tests, NULL, NULL);\n}")
    out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"generate.py: {len(functions)} functions, {len(tests)} calls")


main()
