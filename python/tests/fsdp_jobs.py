"""What ranks do in tests of sharded training (worker.py), with PyTorch's FSDP2."""

import ctypes
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn

import tersegrad
from models import digest, loss_of
from tersegrad import _exchange
from tersegrad._torch_fsdp_scatter import ScatterComm
from tersegrad.torch.fsdp import compress, load


def mlp():
    """Sizes that no number of shards divides."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(20, 33), nn.ReLU(), nn.Linear(33, 31), nn.LayerNorm(31), nn.Linear(31, 5))


def shard(model, layers=True, **options):
    from torch.distributed.fsdp import fully_shard
    for layer in (model[0], model[2]) if layers else ():
        fully_shard(layer, **options)
    fully_shard(model, **options)
    return model


def meshes(world, replicas):
    from torch.distributed.device_mesh import init_device_mesh
    return init_device_mesh("cpu", (replicas, world // replicas), mesh_dim_names=("replicate", "shard"))


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def everything(model):
    return torch.cat([whole(p.detach()).flatten() for p in model.parameters()])


def gradients(model):
    return torch.cat([whole(p.grad).flatten() for p in model.parameters() if p.grad is not None])


def train_model(model, rank, steps, first=0):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(first, first + steps):
        optimizer.zero_grad()
        loss_of(model, step, rank).backward()
        optimizer.step()


def gathered(tensor, group=None):
    out = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group))]
    dist.all_gather(out, tensor.contiguous(), group=group)
    return out


def decoded(recipe, row):
    """What arrives of a row, by a codec of its own: the exchange has no part in it."""
    back = tersegrad.decode(tersegrad.Codec(recipe, nonfinite="pass").encode(row.float().numpy()))
    return torch.from_numpy(back).float()


def sum_of_decoded(recipe, rows):
    """In order; the first one sets, so that a -0 stays one."""
    total = decoded(recipe, rows[0])
    for row in rows[1:]:
        total += decoded(recipe, row)
    return total


def sharded_sums(rank, world, recipe, dtype="float32", factor=None, force_sum=False):
    """Differing bits between every reduce-scatter of a pass and the fp32 sum of decoded rows in rank order; and bytes."""
    from torch.distributed.fsdp import MixedPrecisionPolicy
    policy = MixedPrecisionPolicy(reduce_dtype=getattr(torch, dtype))
    model = shard(mlp(), mp_policy=policy)
    made = compress(model, recipe)
    for module in (model[0], model[2], model):
        if factor is not None:
            module.set_gradient_divide_factor(factor)
        module.set_force_sum_reduction_for_comms(force_sum)
    calls, call = [], ScatterComm.__call__

    def note(self, output_tensor, input_tensor, group, op, async_op=False):
        call(self, output_tensor, input_tensor, group, op, async_op)
        calls.append((input_tensor.clone(), output_tensor.clone(), str(getattr(op, "op", op))))
    with mock.patch.object(ScatterComm, "__call__", note):
        loss_of(model, 0, rank).backward()
    differing, n = 0, 0
    divisor = 1.0 if force_sum else factor or world
    for given, got, _ in calls:
        expected = (sum_of_decoded(recipe.replace("ef+", ""), [other.view(world, -1)[rank] for other in gathered(given)]) / divisor).to(got.dtype)
        differing += int((expected.view(torch.int16) != got.view(torch.int16)).sum())
        n += got.numel()
    inside = made.stats()["inside"]
    return {"differing": differing, "values": n, "ops": sorted({op for _, _, op in calls}), "calls": len(calls), "inside": inside}


def bucket_sizes(rank, world, recipe):
    """Gradients by modules that are sharded together or alone, and with replicas: the digest of each."""
    out = []
    for layers in (True, False):
        model = shard(mlp(), layers)
        compress(model, recipe)
        loss_of(model, 0, rank).backward()
        out.append(digest(gradients(model)))
    return out


def bytes_on_the_wire(rank, world, recipe):
    """Of a reduce-scatter, beside a ring in bf16."""
    model = shard(nn.Sequential(nn.Linear(512, 512), nn.Linear(512, 512), nn.Linear(512, 512)), False)
    made = compress(model, recipe)
    counted, send = [0], dist.isend

    def count(tensor, *arguments, **options):
        counted[0] += tensor.numel()
        return send(tensor, *arguments, **options)
    with mock.patch.object(dist, "isend", count):
        model(torch.randn(4, 512)).sum().backward()
    padded = sum(-(-p.shape[0] // world) * world * p[0].numel() for p in model.parameters())
    inside = made.stats()["inside"]
    return {"counted": counted[0], "link": inside["link"], "sent": inside["sent"], "ring": 2 * padded * (world - 1) // world}


class _Counting:
    """An allocator that counts bytes."""

    def __init__(self):
        self.len = 0
        self._libc = ctypes.CDLL(None)
        self._libc.malloc.restype, self._libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        self._libc.free.restype, self._libc.free.argtypes = None, [ctypes.c_void_p]
        acquire = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
        release = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)

        class Allocator(ctypes.Structure):
            _fields_ = [("acquire", acquire), ("release", release), ("context", ctypes.c_void_p)]
        self.struct = Allocator(acquire(self._acquire), release(lambda _, block: self._libc.free(block)), None)

    def _acquire(self, _, length):
        self.len += length
        return self._libc.malloc(length)


_COUNTING = []  # what exchanges were made with must outlive them


def residual_memory(rank, world, recipe):
    """Bytes that exchanges take with feedback and without, and parameters a shard."""
    mesh = meshes(world, 2)
    out = []
    for each in (recipe, "ef+" + recipe):
        counting, make = _Counting(), _exchange.make_options
        _COUNTING.append(counting)

        def counted(**options):
            made = make(**options)
            made.allocator = ctypes.addressof(counting.struct)
            return made
        model = shard(nn.Sequential(*(nn.Linear(256, 256, bias=False) for _ in range(3))), False, mesh=mesh["shard"])
        torch.manual_seed(1)
        for p in model.parameters():
            nn.init.normal_(p)
        with mock.patch.object(_exchange, "make_options", counted):
            made = compress(model, each, replicas=mesh["replicate"])
        _COUNTING.append(made)
        out.append(counting.len)
    return {"without": out[0], "with": out[1], "parameters": sum(p.numel() for p in model.parameters()), "shards": world // 2}


def replicas(rank, world, recipe, steps=4, exchange=None, inside=None, layers=True):
    """HSDP: all that was given to exchanges between replicas, their averages and residuals; and the weights."""
    mesh = meshes(world, 2)
    model = shard(mlp(), layers, mesh=mesh["shard"])
    made = compress(model, recipe, replicas=mesh["replicate"], inside=inside, exchange=exchange, verify_every=1)
    row_n = sum(group.row_n for group in made._groups)
    given, taken = {}, {}
    for at, between in enumerate(made._betweens):
        def noted(shard, at=at, between=between):
            given.setdefault(at, []).append(shard.clone())
            between(shard)
            taken.setdefault(at, []).append(shard.clone())
        made._groups[at].of._all_reduce_hook = noted
    train_model(model, rank, steps)
    group = mesh["replicate"].get_group()
    sums, averages = (torch.cat([sum(each[at]) for at in sorted(each)]) for each in (given, taken))
    owed = torch.cat([made.residual()[tensor.name] for group_ in made._groups for tensor in group_.segments])
    first = torch.cat([given[at][0] for at in sorted(given)])
    first_taken = torch.cat([taken[at][0] for at in sorted(taken)])
    expected = gathered(first, group)
    return {"digest": digest(everything(model)), "weights": everything(model).tolist(), "row_n": row_n, "owed_n": owed.numel(),
            "given": sum(gathered(sums, group)).tolist(), "taken": (2 * averages).tolist(), "owed": sum(gathered(owed, group)).tolist(),
            "means": int((((expected[0] + expected[1]) / 2).view(torch.int32) != first_taken.view(torch.int32)).sum()), "stats": made.stats()}


def as_pytorch(rank, world, recipe=None, replicas_n=None, native=False, placed=False):
    """The weights after some steps: by PyTorch alone, or compressed."""
    model = mlp()
    if replicas_n is None:
        options = {}
        if placed:
            options["shard_placement_fn"] = _placement(world)
        shard(model, **options)
    else:
        mesh = meshes(world, replicas_n)
        shard(model, mesh=mesh if native else mesh["shard"])
    if recipe is not None:
        made = compress(model, recipe, replicas=None if replicas_n is None or native else mesh["replicate"])
        groups = made.stats()["groups"]
    train_model(model, rank, 3)
    return {"weights": everything(model).tolist(), "groups": None if recipe is None else groups}


def _placement(world):
    """Biases on a mesh of half the ranks, other parameters on all."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp._fully_shard._fsdp_common import FSDPMeshInfo, ShardPlacementResult
    from torch.distributed.tensor import Shard
    half = FSDPMeshInfo(mesh=meshes(world, 2)["shard"], shard_mesh_dim=0)
    whole_ = FSDPMeshInfo(mesh=init_device_mesh("cpu", (world,)), shard_mesh_dim=0)
    return lambda p: ShardPlacementResult(Shard(0), half if p.dim() == 1 else whole_)


def checkpoints(rank, world, folder, recipe, replicas_n, inside=None, resume=None, steps=3):
    """Trains some steps after a checkpoint, which it writes, or goes on from."""
    import torch.distributed.checkpoint as checkpoint
    mesh = meshes(world, replicas_n)
    model = shard(mlp(), mesh=mesh["shard"])
    made = compress(model, recipe, replicas=mesh["replicate"], inside=inside)
    if resume is None:
        train_model(model, rank, steps)
        checkpoint.save({"model": model.state_dict(), "exchange": made.state_dict()}, checkpoint_id=folder)
    else:
        state = {"model": model.state_dict()}
        checkpoint.load(state, checkpoint_id=folder)
        model.load_state_dict(state["model"])
        if resume == "plain":
            own = made.state_dict()
            checkpoint.load({"exchange": own}, checkpoint_id=folder)
            made.load_state_dict(own)
        else:
            load(made, folder, prefix="exchange")
    owed = torch.cat([each.flatten() for each in made.residual().values()])
    train_model(model, rank, steps, first=steps)
    return {"digest": digest(everything(model)), "owed": owed.tolist(), "steps": made._betweens[0].step}


# ---- bad use -----------------------------------------------------------------------------------------------------------------------


def sentence_of(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def bad_use(rank, world):
    """What compress() says, on every rank, and that it can be called again properly."""
    mesh = meshes(world, 2)
    out = {}
    out["not sharded"] = sentence_of(lambda: compress(mlp(), "bf16"))
    model = shard(mlp(), mesh=mesh["shard"])
    between = mesh["replicate"]
    out["variable"] = sentence_of(lambda: compress(model, "topk@0.1"))
    out["coded"] = sentence_of(lambda: compress(model, "fp8+huffman"))
    out["variable inside"] = sentence_of(lambda: compress(model, "adacomp", replicas=between, inside="topk@0.1"))
    out["wrapped"] = sentence_of(lambda: compress(nn.parallel.DistributedDataParallel(mlp()), "mxfp8"))
    out["a number"] = sentence_of(lambda: compress(model, "adacomp", replicas=2))
    out["exchange alone"] = sentence_of(lambda: compress(model, "mxfp8", exchange="gather"))
    out["no recipe"] = sentence_of(lambda: compress(model, "nonsense"))
    out["recipes"] = sentence_of(lambda: compress(model, "bf16" if rank == 1 else "fp16"))
    out["one fails"] = sentence_of(lambda: compress(model, "nonsense" if rank == 1 else "fp16"))
    out["one between"] = sentence_of(lambda: compress(model, "fp16", replicas=between if rank != 1 else None))
    out["inside alone"] = sentence_of(lambda: compress(model, "bf16", inside="bf16"))
    out["inside alone in the recipe"] = sentence_of(lambda: compress(model, "bf16+inside=bf16"))
    out["inside twice"] = sentence_of(lambda: compress(model, "bf16+inside=bf16", inside="bf16", replicas=between))
    out["world"] = sentence_of(lambda: compress(model, "adacomp", replicas=dist.group.WORLD))
    out["swapped"] = sentence_of(lambda: compress(model, "adacomp", replicas=mesh["shard"]))
    out["two dimensions given"] = sentence_of(lambda: compress(model, "adacomp", replicas=mesh))
    out["two dimensions"] = sentence_of(lambda: compress(shard(mlp(), mesh=mesh), "adacomp", replicas=between))
    other = mlp()
    with torch.no_grad():
        other[0].bias += dist.get_rank(between.get_group())
    out["weights"] = sentence_of(lambda: compress(shard(other, mesh=mesh["shard"]), "adacomp", replicas=between))
    compress(model, "adacomp", replicas=between, inside="bf16")
    out["second"] = sentence_of(lambda: compress(model, "adacomp", replicas=between))
    out["nested"] = sentence_of(lambda: compress(model[0], "bf16"))
    train_model(model, rank, 1)
    return out


class _Some(nn.Module):
    """A layer that one rank does not use."""

    def __init__(self):
        super().__init__()
        self.first, self.some, self.last = nn.Linear(20, 24), nn.Linear(24, 24), nn.Linear(24, 5)

    def forward(self, x):
        x = self.first(x)
        return self.last(x if dist.get_rank() == 1 else self.some(x))


def unused(rank, world, recipe, between):
    """A pass in which a rank has no gradient of a parameter; then one that counts it as zeros."""
    from torch.distributed.fsdp import fully_shard
    torch.manual_seed(1)
    mesh = meshes(world, world if between else 1)
    model = fully_shard(_Some(), mesh=mesh["shard"])
    compress(model, recipe, replicas=mesh["replicate"] if between else None)
    before = sentence_of(lambda: loss_of(model, 0, rank).backward())
    if not hasattr(model, "reset_iter_state"):  # before PyTorch 2.13
        return [before, None]
    model.reset_iter_state()
    model.set_reduce_scatter_unused_params(True)
    after = sentence_of(lambda: loss_of(model, 0, rank).backward())
    return [before, after]
