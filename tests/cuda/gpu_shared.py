#!/usr/bin/env python3
"""Several processes on one GPU, each of which trains a ResNet-18 or an LSTM on random data with Workers whose codec is on the GPU.

    TG_LIBRARY=build/cuda/libtersegrad-cuda.so PYTHONPATH=python tests/cuda/gpu_shared.py [--processes 6] [--seconds 60] [--no-mps] [--dump DIR]

All start together, by default under NVIDIA's MPS daemon, which has a folder of its own and is ended with the test. A process trains by one
recipe after the other, process i from number i on, each with workers, CUDA graphs (not of an LSTM) and residuals of its own, as
experiments/training.py does, with local steps or without. Every few steps the same gradients and residuals go through Workers(codec="host"),
too, and the averages must have the same bits.

Under MPS all processes are told of a fault that one of them has caused. With --dump, the GPU writes a core file when a kernel faults, and
cuda-gdb tells the kernel and the address; --read DIR does that alone, of core files of any program. One line for each process, then a verdict; exit status 1 if anything failed, differed or was late.

Without a GPU (--emulated, with emulated kernels) a small model is trained on the CPU, to test the test.
"""

import argparse
import glob
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "cuda"), str(ROOT / "experiments")]
import mps

RECIPES = ("terse/shard*4,lstm:ef+orq@5/shard*15,ef+mxfp4,terse/gather*8,lstm:dense,dense,adacomp/shard,mxfp8,ef+topk@0.01/shard,lstm:dense*15,ef+fp8/shard,"
           "terngrad/server,dgc@0.01/gather,fp16/shard")
SYMBOLS, LENGTH = 65, 128
GRACE = 90     # seconds that processes may take longer than they were told to, to import PyTorch and to end
AFTER = 8      # seconds that the others have to fail, too, or to write a core file, once one has failed
GDB = ("info cuda exception", "info cuda kernels", "info cuda devices", "bt", "x/6i $errorpc-48", "x/2i $errorpc", "x/2i $pc", "info registers",
       "info cuda lanes")


# ---- a process -------------------------------------------------------------------------------------------------------------------

class Job:
    """What a process trains: [MODEL:]RECIPE[/EXCHANGE][*LOCAL], with so many local steps between exchanges."""

    def __init__(self, text):
        self.text = text
        model, _, rest = text.rpartition(":")
        rest, _, local = rest.partition("*")
        self.recipe, _, exchange = rest.partition("/")
        self.model, self.exchange, self.local = model or "resnet", exchange or None, int(local or 0)


class Trainer:
    """One training, with weights, passes and exchanges as experiments/training.py has them."""

    def __init__(self, flags, job, seed):
        import torch
        import nets
        from optimizers import Flat
        from tersegrad.torch import Passes, Workers
        self.flags, self.torch, self.job = flags, torch, job
        self.n = flags.workers[seed % len(flags.workers)]
        self.device = torch.device("cpu" if flags.emulated else "cuda")
        torch.manual_seed(seed)
        is_lstm, narrow = job.model == "lstm", 8 if flags.emulated else None
        model = nets.CharLSTM(SYMBOLS, narrow or 256) if is_lstm else nets.small_cnn(width=4) if flags.emulated else nets.resnet18()
        self.flat = Flat(model, self.device, self.n if job.local else 0)
        self.weights, self.own = self.flat.weights, list(self.flat.own)
        options = {"seed": seed, "exchange": job.exchange}
        self.workers = Workers(model, self.n, job.recipe, codec=flags.codec, **options)
        self.host = None if flags.check == 0 else Workers(model, self.n, job.recipe, codec="host", **options)
        self.passes = Passes(self.workers, model, self._loss_of, graphs=not (flags.no_graphs or is_lstm), bind=self.flat.bind if job.local else None)
        self.velocity = torch.zeros(max(len(self.own), 1), self.weights.numel(), device=self.device)
        self._draw(is_lstm, seed)
        self.step, self.checks = 0, 0
        model.train()

    def _draw(self, is_lstm, seed):
        """Batches: of texts of LENGTH symbols, or of images; 8 for each worker."""
        torch, flags = self.torch, self.flags
        draw, size = torch.Generator(self.device).manual_seed(seed), 2 if flags.emulated else flags.batch
        if is_lstm:
            texts = torch.randint(SYMBOLS, (8, self.n, size, LENGTH + 1), device=self.device, generator=draw)
            self.inputs, self.targets = texts[..., :-1].contiguous(), texts[..., 1:].contiguous()
        else:
            self.inputs = torch.randn(8, self.n, size, 3, 32, 32, device=self.device, generator=draw,
                                      dtype=torch.float32 if flags.emulated else torch.bfloat16)
            self.targets = torch.randint(10, (8, self.n, size), device=self.device, generator=draw)

    def _loss_of(self, x, y):
        torch = self.torch
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda", cache_enabled=False):
            return torch.nn.functional.cross_entropy(self.flat.model(x).float(), y)

    def _batches(self, step):
        at = step % len(self.inputs)
        return list(zip(self.inputs[at], self.targets[at]))

    def _update(self, row, weights, gradient):
        self.velocity[row].mul_(0.9).add_(gradient)
        weights.add_(self.velocity[row], alpha=-0.01)

    def _begin(self, worker, kept):
        """Starts to encode; `kept` takes a copy of what is encoded, unless it is None."""
        if kept is not None:
            kept.append(self.workers.gradient(worker).clone())
        self.workers.collect(worker, self.workers.gradient(worker))

    def _compute(self, kept):
        """As Passes does it, or the local steps of a round."""
        torch, rounds = self.torch, max(self.job.local, 1)
        self.passes.capture(self._batches(self.step))
        for worker in range(self.n):
            gradient = self.workers.gradient(worker)
            with self.passes.stream(worker), torch.no_grad():
                if self.job.local:
                    self.own[worker].copy_(self.weights)
                for i in range(rounds):
                    with torch.enable_grad():
                        self.passes.run(worker, self._batches(self.step * rounds + i)[worker])
                    if self.job.local:
                        self._update(worker, self.own[worker], gradient)
                if self.job.local:
                    torch.sub(self.weights, self.own[worker], out=gradient)
                self._begin(worker, kept)
        self.passes._bind(0)
        self.passes.join()

    def advance(self):
        """A step. Values of the average that differ from the host's."""
        state, kept = None, None
        if self.host is not None and self.step % self.flags.check == self.flags.check - 1:
            state, kept = self.workers.state_dict(), []
        self._compute(kept)
        average = self.workers.gradient(0)
        self.workers.reduce(average)
        differing = 0 if state is None else self._compare(state, kept, average)
        with self.torch.no_grad():
            if self.job.local:
                self.weights.sub_(average)
            else:
                self._update(0, self.weights, average)
        self.step += 1
        return differing

    def _compare(self, state, kept, average):
        torch = self.torch
        own = average.clone()
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        self.host.load_state_dict(state)
        for worker, gradient in enumerate(kept):
            self.host.collect(worker, gradient)
        expected = torch.empty_like(own)
        self.host.reduce(expected)
        self.checks += 1
        return int((own.view(torch.int32) != expected.view(torch.int32)).sum())


def train(flags):
    """The work of one process; its exit status."""
    import gc
    import torch
    import tersegrad
    torch.set_num_threads(1)
    torch.backends.cudnn.benchmark = not flags.no_benchmark
    jobs = [Job(each) for each in flags.recipes.split(",")]
    until, turn = time.monotonic() + flags.seconds, flags.number
    steps = checks = differing = 0
    while time.monotonic() < until:
        job = jobs[turn % len(jobs)]
        tell(f"makes {job.text}")
        trainer, end = Trainer(flags, job, turn), min(until, time.monotonic() + flags.each)
        tell(f"begins {job.text}, {trainer.n} workers, codec {trainer.workers.codec}")
        try:
            while time.monotonic() < end:
                wrong = trainer.advance()
                if wrong:
                    differing += 1
                    tell(f"DIFFERS {job.text} at step {trainer.step - 1}: {wrong} values")
        except (tersegrad.Error, RuntimeError) as error:
            tell(f"FAILED {job.text} in step {trainer.step}: {type(error).__name__}: {' '.join(str(error).split())[:300]}")
            return 1
        steps, checks, turn = steps + trainer.step, checks + trainer.checks, turn + 1
        del trainer
        gc.collect()
    if not flags.emulated:
        torch.cuda.synchronize()
    tell(f"ended: {steps} steps, {checks} compared, {differing} of them differ")
    return 1 if differing or (flags.check and not checks) else 0


def tell(text):
    print(f"{time.time() % 100000:.3f} {text}", flush=True)


# ---- all of them -----------------------------------------------------------------------------------------------------------------

class Process:
    def __init__(self, flags, number, folder, environment):
        self.number, self.log = number, folder / f"process-{number}.log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen([sys.executable, __file__, *sys.argv[1:], "--number", str(number)], env=environment, stdout=log,
                                            stderr=subprocess.STDOUT, start_new_session=True)
        self.is_late = False

    def has_failed(self):
        return self.process.poll() not in (None, 0)

    def kill(self):
        self.is_late = True
        os.killpg(self.process.pid, signal.SIGKILL)  # its own session
        self.process.wait()

    def report(self):
        """How it ended; its output, if not well."""
        code = self.process.returncode
        how = "was still running" if self.is_late else "ok" if code == 0 else f"exit status {code}" if code > 0 else signal.Signals(-code).name
        lines = self.log.read_text(errors="replace").strip().splitlines()
        print(f"process {self.number} (pid {self.process.pid}): {how}; {lines[-1][:300] if lines else 'no output'}", flush=True)
        if how != "ok":
            for line in [each for each in lines if "FAILED" in each or "DIFFERS" in each][:4] + lines[-12:]:
                print(f"    {line[:400]}", flush=True)


def environment_of(flags, shared):
    out = dict(shared or os.environ, PYTHONFAULTHANDLER="1", OMP_NUM_THREADS="1")
    if flags.emulated:
        out.update(TG_EMULATED_REACH="1", TG_EMULATED_TORCH="1")
    if flags.dump:
        out.update(dump_variables(flags.dump))
    return out


def dump_variables(folder):
    """For the daemon, too, which must know them before it starts."""
    return {"CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "1", "CUDA_ENABLE_LIGHTWEIGHT_COREDUMP": "1", "CUDA_COREDUMP_SHOW_PROGRESS": "1",
            "CUDA_COREDUMP_FILE": str(pathlib.Path(folder).resolve() / "core-%p")}


def watch(processes, until):
    """Waits for all. Once one has failed, the others have AFTER seconds; then they are ended."""
    while time.monotonic() < until and any(each.process.poll() is None for each in processes):
        if any(each.has_failed() for each in processes):
            until = min(until, time.monotonic() + AFTER)
        time.sleep(0.2)
    for each in processes:
        if each.process.poll() is None:
            each.kill()


def tell_cores(folder):
    """What cuda-gdb finds in core files; of the first ones, because a fault is dumped by every process that is told of it."""
    cores = sorted(glob.glob(str(pathlib.Path(folder) / "core*")), key=os.path.getmtime)
    debugger = shutil.which("cuda-gdb") or shutil.which("/usr/local/cuda/bin/cuda-gdb")
    print(f"core files: {', '.join(f'{pathlib.Path(each).name} ({os.path.getsize(each)} bytes)' for each in cores) or 'none'}"
          f"{'' if debugger else '; there is no cuda-gdb to read them'}", flush=True)
    for core in cores[:3] if debugger else ():
        command = [debugger, "-batch", "-ex", f"target cudacore {core}", *(part for each in GDB for part in ("-ex", each))]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, errors="replace")
            print(f"--- {pathlib.Path(core).name}\n{(done.stdout + done.stderr)[:5000]}", flush=True)
        except subprocess.TimeoutExpired:
            print(f"--- {pathlib.Path(core).name}: cuda-gdb did not end", flush=True)


def tell_daemon(folder):
    """What the daemon logged of faults and of clients that were lost."""
    for path in sorted(folder.glob("mps/*.log")):
        lines = [line for line in path.read_text(errors="replace").splitlines() if any(word in line.lower() for word in ("fault", "error", "fatal", "fail", "exception"))]
        for line in lines[:20]:
            print(f"{path.name}: {line[:300]}", flush=True)


def run_once(flags, folder, shared):
    """All processes, once. Whether all went well."""
    environment, begin = environment_of(flags, shared), time.monotonic()
    processes = [Process(flags, number, folder, environment) for number in range(flags.processes)]
    watch(processes, begin + flags.seconds + GRACE)
    for each in processes:
        each.report()
    good = all(each.process.returncode == 0 and not each.is_late for each in processes)
    if not good:
        tell_daemon(folder)
        if flags.dump:
            tell_cores(flags.dump)
    return good


def run_all(flags):
    if flags.dump:
        pathlib.Path(flags.dump).mkdir(parents=True, exist_ok=True)
        os.environ.update(dump_variables(flags.dump))
    results = []
    with tempfile.TemporaryDirectory(prefix="tg") as name:
        folder = pathlib.Path(name)
        with mps.daemon(folder, not flags.no_mps and not flags.emulated) as shared:
            is_shared = shared is not None
            for turn in range(flags.rounds):
                results.append(run_once(flags, folder, shared))
                if not results[-1]:
                    break
    wanted = flags.no_mps or flags.emulated or is_shared
    good = all(results) and wanted
    print(json.dumps({"ok": good, "mps": is_shared, "processes": flags.processes, "rounds": len(results)}), flush=True)
    verdict = "the processes agree with the host, without a fault" if flags.check else "the processes ended without a fault; nothing was compared"
    print(verdict if good else "FAIL: see above" if wanted else "FAIL: there is no MPS (--no-mps: without it)",
          flush=True)
    return 0 if good else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=60, help="that each process trains for, start included [60]")
    parser.add_argument("--rounds", type=int, default=1, help="so many times, each with new processes [1]")
    parser.add_argument("--recipes", default=RECIPES, help=f"[MODEL:]RECIPE[/EXCHANGE][*LOCAL], MODEL resnet or lstm, LOCAL steps between exchanges, with commas between [{RECIPES}]")
    parser.add_argument("--each", type=float, default=12, help="seconds of a recipe, before the next one [12]")
    parser.add_argument("--check", type=int, default=25, help="steps between comparisons with the host; 0: none [25]")
    parser.add_argument("--workers", type=lambda text: [int(each) for each in text.split(",")], default=[4, 4, 8], help="of trainings, in turn [4,4,8]")
    parser.add_argument("--batch", type=int, default=64, help="of a worker [64]")
    parser.add_argument("--codec", default="device", choices=("device", "host"))
    parser.add_argument("--no-mps", action="store_true", help="processes take turns on the GPU")
    parser.add_argument("--no-graphs", action="store_true", help="passes are not captured in CUDA graphs")
    parser.add_argument("--no-benchmark", action="store_true", help="cuDNN does not try its algorithms")
    parser.add_argument("--dump", metavar="DIR", help="have the GPU write core files there, and say what is in them")
    parser.add_argument("--read", metavar="DIR", help="only say what is in the core files there")
    parser.add_argument("--emulated", action="store_true", help="kernels on the CPU, with a small model")
    parser.add_argument("--number", type=int, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.number is not None:
        status = train(flags)
        sys.stdout.flush()
        os._exit(status)
    if flags.read:
        tell_cores(flags.read)
        return 0
    return run_all(flags)


if __name__ == "__main__":
    sys.exit(main())
