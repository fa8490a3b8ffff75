"""The part of gpu_torch.py that is about Workers: the bits of exchanges on several streams of one GPU, and the time of a step."""

import gc
import statistics
import sys
import time

import gpu_time

# Exchanges of one round, of several, by owners and by rank 0; frames of fixed length and of any.
EXCHANGES = (("terse", "shard"), ("terse", "gather"), ("ef+topk@0.01", "shard"), ("terngrad", "server"), ("ef+fp16", "shard"), ("powersgd@2", None),
             ("dense", None))
STEPS = 12


# ---- bits ------------------------------------------------------------------------------------------------------------------------

class Load:
    """Keeps the device busy beside what is tested, so that streams run apart from each other."""

    def __init__(self, r):
        self._torch, self._stream = r.torch, None if r.flags.cpu else r.torch.cuda.Stream()
        self._a = r.torch.randn(4 if r.flags.cpu else 2048, 4 if r.flags.cpu else 2048, device=r.device)

    def add(self, n=8):
        if self._stream is not None:
            with self._torch.cuda.stream(self._stream):
                for _ in range(n):
                    self._a = (self._a @ self._a).clamp_(-1, 1)


def averages_of(r, recipe, exchange, codec, load):
    """The averages of some steps, and what residuals hold after them."""
    from tersegrad.torch import Workers
    torch, out = r.torch, []
    shapes = ((64, 32, 3, 3), (64,), (300, 257)) if r.flags.cpu else ((512, 512, 3, 3), (512,), (1000, 512), (64, 64, 3, 3), (64,))
    parameters = [torch.nn.Parameter(torch.zeros(shape, device=r.device)) for shape in shapes]
    workers = Workers(parameters, 4, recipe, seed=3, exchange=exchange, codec=codec)
    flat = torch.empty_like(workers.gradient(0))
    for step in range(STEPS):
        load.add()
        for worker in range(4):
            draw = torch.Generator(r.device).manual_seed(100 * step + worker)
            workers.collect(worker, torch.randn(flat.shape, device=r.device, generator=draw))
        workers.reduce(flat)
        out.append(flat.cpu())
    return torch.cat(out + [each.flatten() for worker in range(4) for each in workers.residual(worker).values()])


def agree(r):
    """Bits of the codec on the device, with workers on several streams, are those of the codec on the host."""
    import tersegrad
    load = Load(r)
    for recipe, exchange in EXCHANGES:
        name = f"{recipe} {exchange or ''}".strip()
        try:
            own, expected = (averages_of(r, recipe, exchange, codec, load) for codec in (None if r.flags.cpu else "device", "host"))
            result = "same" if r.torch.equal(own, expected) else "differ"
        except tersegrad.Error as error:
            result = str(error)
        gc.collect()
        r.say(kind="bits", who="4 workers", recipe=name, result=result)


# ---- time ------------------------------------------------------------------------------------------------------------------------

def timing(r):
    """ResNet-18 with 4 workers: a step, and the same without the exchange. What is more is the exchange's."""
    from tersegrad.torch import Passes, Workers
    torch, F = r.torch, r.torch.nn.functional
    n, size, batch = (2, 32, 2) if r.flags.cpu else (4, 32, 128)
    draw = torch.Generator().manual_seed(1)
    batches = [(torch.randn(batch, 3, size, size, generator=draw).to(r.device), torch.randint(10, (batch,), generator=draw).to(r.device))
               for _ in range(n)]

    def run(recipe):
        torch.manual_seed(1)
        model = (torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 10)) if r.flags.cpu else gpu_time.resnet(torch, (2, 2, 2, 2), False, 10)).to(r.device)

        def loss_of(x, y):
            with torch.autocast(r.device.type, torch.bfloat16):
                return F.cross_entropy(model(x), y)
        group = Workers(model, n, recipe or "dense")
        passes = Passes(group, model, loss_of)
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        times = []
        for _ in range(4 if r.flags.cpu else 40):
            begin = time.perf_counter()
            if recipe is None:  # the passes alone
                passes.capture(batches)
                for worker in range(n):
                    with passes.stream(worker):
                        passes.run(worker, batches[worker])
                passes._bind(0)
                passes.join()
            else:
                passes(batches)
                group.reduce()
            optimizer.step()
            if r.device.type == "cuda":
                torch.cuda.synchronize()
            times.append(1000 * (time.perf_counter() - begin))
        return statistics.median(times[len(times) // 2:]), group.codec
    alone, _ = run(None)
    for recipe in ("dense", "adacomp", "ef+topk@0.01", "ef+fp8", "terngrad"):
        if not r.goes_on(4):
            break
        ms, codec = run(recipe)
        r.say(kind="workers", n=n, model="ResNet-18", recipe=recipe, ms=ms, alone_ms=alone, share=max(0.0, 1 - alone / ms), codec=codec)
        gc.collect()


def workers(r):
    agree(r)
    timing(r)


if __name__ == "__main__":
    sys.exit("run gpu_torch.py")
