"""Shapes of a model for `tersegrad plan`, and advice after some steps of a training (State(advise=True))."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
from typing import Any, Dict, List, Optional, Sequence

import torch

from ._library import TensorSpec
from ._torch_model import describe, dtype_name

_SHORT = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
FIRST_STEP, LAST_STEP = 3, 20  # steps that advice is about: those before fill caches and make connections


def shapes(model: torch.nn.Module) -> List[Dict[str, Any]]:
    """The tensors of a module that are trained, as `tersegrad plan --shapes` reads them: name, shape, kind and dtype of each."""
    return [{"name": name, "shape": list(parameter.shape), "kind": kind, "dtype": _SHORT[dtype_name(parameter.dtype) or "float32"]}
            for parameter, (name, kind) in describe(model).items() if parameter.requires_grad]


def write_shapes(model: torch.nn.Module, path: Any) -> None:
    """Writes shapes(model) to a file, as JSON: `tersegrad plan --shapes FILE`."""
    pathlib.Path(path).write_text(json.dumps(shapes(model), indent=1) + "\n", encoding="utf-8")


def program() -> Optional[str]:
    """The program: TERSEGRAD in the environment, the package's own, or one on the path; None: there is none."""
    own = pathlib.Path(__file__).with_name("bin") / "tersegrad"
    return os.environ.get("TERSEGRAD") or (str(own) if own.exists() else shutil.which("tersegrad"))


class Advice:
    """Watches the steps of one rank, and says once what follows from them."""

    def __init__(self) -> None:
        self.is_given = False
        self.seconds = 0.0  # of all steps that count, from the end of one to the end of the next
        self.counts: Dict[str, float] = {}
        self.steps = 0
        self._ended: Optional[float] = None

    def take(self, step: int, ended: float, counts: Dict[str, Any]) -> bool:
        """A step that has ended at a time; whether it is time for the advice."""
        if self._ended is not None and step >= FIRST_STEP:
            self.seconds += ended - self._ended
            self.steps += 1
            for name, value in counts.items():
                self.counts[name] = self.counts.get(name, 0.0) + value
        self._ended = ended
        return not self.is_given and self.steps >= LAST_STEP - FIRST_STEP

    def measured(self) -> str:
        step, n = self.seconds / self.steps, self.steps
        part = {name: 1000 * self.counts[f"{name}_seconds"] / n for name in ("exposed", "encode", "wire", "decode")}
        return (f"in {n} steps, one took {1000 * step:.3g} ms, of which {part['exposed']:.3g} exposed (encoding {part['encode']:.3g}, messages "
                f"{part['wire']:.3g}, decoding {part['decode']:.3g}); a rank sent {self.counts['sent'] / n:,.0f} bytes")

    def predicted(self, recipe: str, tensors: Sequence[TensorSpec], world: int, host_size: int, group_len: int, device: str = "cpu") -> str:
        """What `tersegrad plan` says of this model, these ranks and times, and a link as fast as bytes have moved at least.

        device: "cuda" if gradients are on GPUs; the program then measures one, and needs to be built with CUDA.
        """
        found = program()
        if found is None:
            return "no prediction: the program tersegrad is not installed"
        step, exposed, wire = (value / self.steps for value in (self.seconds, self.counts["exposed_seconds"], self.counts["wire_seconds"]))
        moved = max(self.counts["sent"], self.counts["received"]) / self.steps
        rate = min(1e12, max(1e3, 8 * moved / max(wire, 1e-9)))
        hosts = world // host_size if host_size else world
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "shapes.json"
            path.write_text(json.dumps([{"name": name, "shape": list(shape), "kind": kind, "dtype": _SHORT[dtype]}
                                        for name, shape, kind, dtype in tensors]), encoding="utf-8")
            line = [found, "plan", "--shapes", str(path), "--workers", str(world), "--hosts", str(hosts), "--rate", f"{rate / 1e3:.0f}kbit",
                    "--compute", f"{1e6 * max(step - exposed, 1e-6):.0f}us", "--group-size", str(group_len),
                    "--device", device, "--json"]
            done = subprocess.run(line, capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            return f"no prediction: {done.stderr.strip()}"
        told = json.loads(done.stdout.splitlines()[-1])
        own = next((row["recipe"] for row in told["recipes"] if row["canonical"] == recipe), None)
        if own is not None and told["recommended"] == own:
            return f"stay with {own}: no recipe of those that cost little accuracy is predicted to be faster"
        return f"predicted for this model, {world} ranks and at least {rate / 1e9:.3g} Gbit/s: {told['recommendation']}"
