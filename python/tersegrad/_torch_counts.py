"""What the steps of an exchange in PyTorch took: bytes and times of the last step and of all."""

import operator
from typing import Any, Dict, List, Sequence

from ._library import Meter

_NAMES = (*(field[0] for field in Meter._fields_), "seconds")  # what the library counts, and seconds in all


class Counts:
    def __init__(self) -> None:
        self._last: List[float] = [0] * len(_NAMES)
        self._total = self._last

    def add(self, meter: Meter, seconds: float) -> None:
        """Counts a step."""
        self._last = [*(getattr(meter, name) for name in _NAMES[:-1]), seconds]
        self._total = list(map(operator.add, self._total, self._last))

    def last(self) -> Dict[str, Any]:
        return _named(self._last)

    def total(self) -> Dict[str, Any]:
        return _named(self._total)

    def write(self, writer: Any, step: int) -> None:
        """The last step's, to a writer of TensorBoard."""
        last = self.last()
        for name, value in (("bytes_sent", last["sent"]), ("bytes_received", last["received"]), ("seconds", last["seconds"]),
                            ("ratio", last["ratio"])):
            writer.add_scalar(f"tersegrad/{name}", value, step)

    def text(self) -> str:
        """Means of all steps, of which there is at least one."""
        total = self.total()
        steps = total["steps"]
        exposed, encoding, decoding = (1000 * total[f"{name}_seconds"] / steps for name in ("exposed", "encode", "decode"))
        return (f"{steps} steps: {total['sent'] / steps:,.0f} bytes a step and rank instead of {total['dense'] / steps:,.0f} "
                f"(1/{total['ratio']:.1f}), {1000 * total['seconds'] / steps:.1f} ms a step: "
                f"encoding {encoding:.1f}, decoding {decoding:.1f}, exposed {exposed:.1f}")


def _named(counts: Sequence[float]) -> Dict[str, Any]:
    """As State.stats() returns them."""
    out = {name[:-len("ns")] + "seconds" if name.endswith("_ns") else name: count * 1e-9 if name.endswith("_ns") else count
           for name, count in zip(_NAMES, counts)}
    sent = out["payload"] + out["header"]
    return dict(out, sent=sent, ratio=out["dense"] / sent if sent else 1.0)
