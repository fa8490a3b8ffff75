#!/usr/bin/env python3
"""Makes golden-errors.zip and manifest.json: frames that must be refused, bad/, and unusual valid ones, good/.

    make.py              adds what is new; fails and writes nothing if an existing frame would change or go
    make.py --anew       allows that: for a new version of the format, or a case that was wrong
    make.py --check      only reports whether archive and manifest are what this script makes
    make.py --show P     prints the messages of program P and of the reference decoder for each frame in bad/

The frames are defined in cases.py; tests/ref/frame_writer.py writes them from scratch.
"""

import argparse
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

from cases import BAD, GOOD, ref

import archive  # from tests/ref, which cases.py adds to the path
import golden_errors


def show(program):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "x.tg"
        for row, frame in BAD.values():
            path.write_bytes(frame)
            done = subprocess.run([program, "inspect", str(path)], capture_output=True, timeout=60)
            try:
                ref.decode(frame)
                said = "ACCEPTED"
            except ref.FormatError as error:
                said = str(error)
            sentence = done.stderr.decode("utf-8", "backslashreplace").strip().partition(".tg: ")[2]
            ours = sentence if done.returncode else "ACCEPTED"
            print(f"{row['file'][4:-3]} ({row['rule']})\n    {ours}\n    {said}")


def main():
    parser = argparse.ArgumentParser(description="Make frames that must be refused, and unusual valid ones.")
    parser.add_argument("--anew", action="store_true", help="allow existing frames to change")
    parser.add_argument("--check", action="store_true", help="only report whether all is what this script makes")
    parser.add_argument("--show", metavar="PROGRAM", help="print the messages of a program and the reference decoder")
    options = parser.parse_args()
    if options.show:
        return show(options.show)

    files = {row["file"]: frame for row, frame in [*BAD.values(), *GOOD.values()]}
    manifest = {kind: [{**row, "sha256": hashlib.sha256(frame).hexdigest()} for row, frame in cases.values()]
                for kind, cases in (("bad", BAD), ("good", GOOD))}
    text = json.dumps(manifest, indent=1) + "\n"
    old = golden_errors.files()
    changes = archive.changes(old, files)
    if options.check:
        changes += [f"{name} is missing" for name in sorted(set(files) - set(old))]
        if golden_errors.MANIFEST.read_text(encoding="utf-8") != text:
            changes.append("manifest.json is not what this script makes")
        print(*changes, sep="\n", end="\n" * bool(changes))
        return len(changes) > 0
    if changes and not options.anew:
        print(*changes, "nothing was written", sep="\n", file=sys.stderr)
        return 1
    archive.store(golden_errors.ARCHIVE, files)
    golden_errors.MANIFEST.write_text(text, encoding="utf-8")
    print(f"{len(BAD)} bad frames, {len(GOOD)} good ones, {golden_errors.ARCHIVE.stat().st_size} bytes, "
          f"{len(set(files) - set(old))} files new")
    return 0


if __name__ == "__main__":
    sys.exit(main())
