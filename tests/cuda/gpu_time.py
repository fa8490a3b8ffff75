"""The parts of gpu_torch.py that time steps of DistributedDataParallel with each hook, over links of several rates."""

import ctypes
import gc
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLAIN = ("none", "torch:fp16", "torch:bf16", "torch:powersgd", "adacomp", "ef+topk@0.01", "ef+fp8")
HOOKS = {"time": PLAIN, "link": (*PLAIN, "terngrad", "powersgd@4")}
RATES = {"time": (0,), "link": (25, 10, 0, 1)}  # Gbit/s that a rank sends; 0: as fast as the loopback is. The slowest gets what time is left
STEPS = {"time": 40, "link": 5}  # of each hook at most, at each rate, the first of which is not counted
WARM_UPS = 3                     # steps before that


# ---- models --------------------------------------------------------------------------------------------------------------------

def resnet(torch, blocks, bottleneck, classes=1000):
    """ResNet-18 is (2, 2, 2, 2) of plain blocks, ResNet-50 (3, 4, 6, 3) of bottlenecks. With 10 classes it is for images of 32 x 32, which its first
    layer leaves as large."""
    nn = torch.nn

    def conv(a, b, size, by=1):
        return nn.Conv2d(a, b, size, by, size // 2, bias=False), nn.BatchNorm2d(b)

    class Block(nn.Module):
        def __init__(self, inputs, width, stride):
            super().__init__()
            out = 4 * width if bottleneck else width
            if bottleneck:
                self.body = nn.Sequential(*conv(inputs, width, 1), nn.ReLU(), *conv(width, width, 3, stride), nn.ReLU(), *conv(width, out, 1))
            else:
                self.body = nn.Sequential(*conv(inputs, width, 3, stride), nn.ReLU(), *conv(width, out, 3))
            self.shortcut = nn.Sequential(*conv(inputs, out, 1, stride)) if stride != 1 or inputs != out else nn.Identity()

        def forward(self, x):
            return torch.relu(self.body(x) + self.shortcut(x))
    first = [*conv(3, 64, 3), nn.ReLU()] if classes == 10 else [*conv(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    layers, inputs = first, 64
    for stage, n in enumerate(blocks):
        for block in range(n):
            layers.append(Block(inputs, 64 << stage, 2 if stage > 0 and block == 0 else 1))
            inputs = (4 if bottleneck else 1) * (64 << stage)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def models_of(r):
    """(name, how to make it, a batch, its loss) of each model. Two ranks share the GPU, and what they send goes through its host: they get the
    smaller GPT."""
    from torch_gpt import GPT
    torch, F = r.torch, r.torch.nn.functional
    draw = torch.Generator().manual_seed(r.rank)

    def gpt(name, width, layers, batch, length):
        tokens = torch.randint(256, (batch, length + 1), generator=draw).to(r.device)
        return (name, lambda: GPT(width=width, layers=layers, heads=max(width // 64, 1), length=length), tokens,
                lambda model, x: F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten()))
    if r.flags.cpu:
        return [gpt("GPT", 32, 1, 2, 64)]
    images = torch.randn(64, 3, 224, 224, generator=draw).to(r.device), torch.arange(64).to(r.device)
    return [("ResNet-50", lambda: resnet(torch, (3, 4, 6, 3), True), images, lambda model, x: F.cross_entropy(model(x[0]), x[1])),
            gpt("GPT", 768, 12, 16, 512) if r.world == 1 else gpt("GPT-25M", 512, 8, 16, 512)]


# ---- steps with each hook --------------------------------------------------------------------------------------------------------

def register(r, ddp_model, name):
    """The hook of this name; ours get a process group each, because NCCL needs one order of operations in each."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
    from tersegrad.torch import State, hook
    if name == "torch:powersgd":
        ddp_model.register_comm_hook(powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2), powerSGD_hook.powerSGD_hook)
    elif name == "torch:allreduce":
        ddp_model.register_comm_hook(None, default_hooks.allreduce_hook)
    elif name.startswith("torch:"):
        ddp_model.register_comm_hook(None, getattr(default_hooks, name[len("torch:"):] + "_compress_hook"))
    elif name != "none":
        group = r.dist.new_group(backend="gloo" if r.flags.cpu else "cpu:gloo,cuda:nccl")
        state = State(name, model=ddp_model, process_group=group, verify_every=0)
        ddp_model.register_comm_hook(state, hook)
        return state
    return None


class Job:
    """A model with a hook, and the milliseconds of its steps."""

    def __init__(self, r, name, make, batch, loss_of, bucket_mb=25):
        from torch.nn.parallel import DistributedDataParallel
        self.r, self.name, self.batch, self.loss_of, self.times = r, name, batch, loss_of, []
        r.torch.manual_seed(1)
        with r.device:  # which draws weights faster than CPUs do
            made = make()
        self.model = DistributedDataParallel(made.to(r.device), gradient_as_bucket_view=True, bucket_cap_mb=bucket_mb)
        self.state = register(r, self.model, name)
        self.optimizer = r.torch.optim.SGD(self.model.parameters(), 0.01)
        self.marks = []  # milliseconds of its parts on the host

    def step(self):
        torch = self.r.torch
        begin = time.perf_counter()
        self.optimizer.zero_grad()
        with torch.autocast(self.r.device.type, torch.bfloat16):
            loss = self.loss_of(self.model, self.batch)
        forward = time.perf_counter()
        loss.backward()
        backward = time.perf_counter()
        self.optimizer.step()
        launched = time.perf_counter()
        if self.r.device.type == "cuda":
            torch.cuda.synchronize()
        end = time.perf_counter()
        self.times.append(1000 * (end - begin))
        self.marks.append([1000 * part for part in (forward - begin, backward - forward, launched - backward, end - launched)])


def timing(r):
    """The models of all hooks take turns, so that what else happens to the machine happens to all. Rates share the time that is left."""
    part, slow = r.flags.part, SlowLink()
    for what, make, batch, loss_of in models_of(r):
        if r.flags.model and what != r.flags.model:
            continue
        begin = time.time()
        jobs = [Job(r, name, make, batch, loss_of) for name in HOOKS[part] if not (r.flags.cpu and name.startswith("torch:"))]
        for _ in range(WARM_UPS):
            for job in jobs:
                job.step()
        r.say(kind="setup", part=part, world=r.world, model=what, seconds=time.time() - begin)
        for at, gbit in enumerate(RATES[part]):
            slow.set(gbit)
            measure(r, jobs, time.time() + (r.until - time.time()) / (len(RATES[part]) - at))
            for job in jobs:
                tell(r, what, job, gbit)
        slow.set(0)
        del jobs
        gc.collect()


def measure(r, jobs, until):
    """Steps of all jobs in turn, as many as there is time for."""
    most, slowest, n = STEPS[r.flags.part] if not r.flags.cpu else 2, 0.0, 0
    for job in jobs:
        job.times = []
    while n < most and r.goes_on(slowest, until):
        begin = time.time()
        for job in jobs:
            job.step()
        slowest, n = time.time() - begin, n + 1


def tell(r, what, job, gbit):
    times = job.times[1:]
    if not times:
        r.say(kind="skipped", part=r.flags.part, why=f"no time left for {what} with {job.name}, {r.world} ranks, {gbit or 'any number of'} Gbit/s")
        return
    sent = job.state.stats()["last"]["sent"] if job.state is not None else None
    r.say(kind="time", part=r.flags.part, world=r.world, model=what, hook=job.name, ms=statistics.median(times), n=len(times), sent=sent,
          gbit=gbit, by="delay" if gbit else "", torch=r.torch.__version__)


# ---- links of a rate ---------------------------------------------------------------------------------------------------------------

def build_delay(folder):
    """The library that slows what a process sends, built here; None: there is no compiler."""
    out = pathlib.Path(folder, "slow_link.so")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    done = subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(out), str(ROOT / "tests" / "cuda" / "slow_link.c"), "-ldl", "-pthread"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        print(f"gpu_torch: the slow link cannot be built: {done.stderr.strip().splitlines()[-1]}", flush=True)
    return out if done.returncode == 0 else None


class SlowLink:
    """What this process sends, as over a link of its own. slow_link.c is preloaded in processes that are to be slow."""

    def __init__(self):
        self._set = getattr(ctypes.CDLL(None), "tg_slow_link", None)
        if self._set is not None:
            self._set.argtypes, self._set.restype = [ctypes.c_double], None

    def set(self, gbit):
        if gbit:
            self._set(gbit * 1e9 / 8)
        elif self._set is not None:
            self._set(0)


if __name__ == "__main__":
    sys.exit("run gpu_torch.py")
