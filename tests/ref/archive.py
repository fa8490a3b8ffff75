"""The archives of tests/golden and tests/golden-errors: zip files that hold all frames and tensors of their folder.

An archive is not compressed, sorted by name, and has one fixed timestamp, so the same files always give the same bytes,
with any version of zlib. Git compresses it and stores only what is new after a frame is added.
"""

import io
import os
import pathlib
import zipfile

TIMESTAMP = (1980, 1, 1, 0, 0, 0)


def load(path):
    """{name: bytes} of an archive; no entries if there is no such file. Raises zipfile.BadZipFile if it is damaged."""
    if not os.path.exists(path):
        return {}
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def dump(files):
    """The bytes of the archive that holds `files`, {name: bytes}."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, TIMESTAMP)
            entry.create_system = 3  # Unix, on every system
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, files[name])
    return buffer.getvalue()


def store(path, files):
    """Replaces the archive; a reader sees either the old or the new one."""
    new = pathlib.Path(f"{path}.new")
    new.write_bytes(dump(files))
    os.replace(new, path)


def changes(old, new):
    """Sentences about what `new` changes or leaves out of `old`; additions are not listed."""
    return ([f"{name} would change" for name in sorted(old) if name in new and new[name] != old[name]] +
            [f"{name} would be removed" for name in sorted(old) if name not in new])
