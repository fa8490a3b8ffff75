#!/usr/bin/env python3
"""LocalSteps with parameters on a GPU, over NCCL: several ranks on one GPU (or one each). Prints a line a check, then "ok" or what failed; exit
status 0 or 1.

    TG_LIBRARY=build/cuda/libtersegrad-cuda.so PYTHONPATH=python python3 tests/cuda/local_gpu.py [--worlds 2,4]
    TG_LIBRARY=build/emulated/libtersegrad-cuda.so PYTHONPATH=python python3 tests/cuda/local_gpu.py --emulated     over gloo, without a GPU

moves      the same gradients on the GPU over NCCL and on the CPU over gloo: weights after every exchange, residuals and averaged buffers
           must have the same bits, also overlapped in fragments
training   AdamW with a GradScaler and batch norm: replicas are the same to the bit after every exchange; resumed inside a round, too
sharded    four ranks, two replicas that FSDP2 shards: LocalSteps between the replicas
"""

import hashlib
import io
import os
from unittest import mock

import one_gpu
from one_gpu import differing


class Rank(one_gpu.Rank):
    def net(self, device, dtype):
        torch = self.torch
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(70, 131), torch.nn.BatchNorm1d(131), torch.nn.ReLU(), torch.nn.Linear(131, 67), torch.nn.Linear(67, 10))
        return model.to(device, dtype)

    # ---- moves ---------------------------------------------------------------------------------------------------------------------

    def moved(self, on_gpu, recipe, dtype, steps=9, **options):
        """Weights after every step, residuals and buffers, on the CPU. A rate that is a power of two leaves one rounding a step."""
        from tersegrad.torch import LocalSteps
        torch = self.torch
        device, group = (self.device, None) if on_gpu else (torch.device("cpu"), self.gloo)
        model = self.net(device, dtype)
        local = LocalSteps(model, torch.optim.SGD(model.parameters(), lr=0.125), recipe, process_group=group, buffers="round", seed=3,
                           verify_every=1, **options)
        out = []
        draw = torch.Generator().manual_seed(self.rank)
        for _ in range(steps):
            for p in model.parameters():
                p.grad = torch.randn(p.shape, generator=draw).to(device, dtype)
            model[1].running_mean.copy_(torch.randn(131, generator=draw))
            local.step()
            out.append(torch.cat([t.detach().cpu().flatten().float() for t in (*model.parameters(), model[1].running_mean)]))
        local.synchronize()
        out.append(torch.cat([p.detach().cpu().flatten().float() for p in model.parameters()]))
        same = self.are_same(out[-1].numpy().tobytes())
        out += [residual.flatten() for residual in local.residual().values()]
        return torch.cat(out), same, local.stats()["exchanges"]

    def check_moves(self, recipe, dtype="float32", **options):
        dtype = getattr(self.torch, dtype)
        got, same, n = self.moved(True, recipe, dtype, **options)
        with mock.patch.dict(os.environ, {"TG_EMULATED_TORCH": ""}):
            expected, _, _ = self.moved(False, recipe, dtype, **options)
        wrong = differing(got, expected)
        self.say(f"moves, {recipe}, {dtype}, {options}", wrong == 0 and same,
                 f"{wrong} of {got.numel()} values differ from a CPU's; replicas are the {'same' if same else 'NOT same'}, {n} exchanges")

    # ---- training ------------------------------------------------------------------------------------------------------------------

    def digest(self, model):
        values = [t.detach().cpu().float().flatten() for t in (*model.parameters(), *model.buffers())]
        return hashlib.sha256(self.torch.cat(values).numpy().tobytes()).hexdigest()

    def made(self, **options):
        from tersegrad.torch import LocalSteps
        torch = self.torch
        model = self.net(self.device, torch.float32)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        scaler = None if self.flags.emulated else torch.amp.GradScaler("cuda", init_scale=2.0 ** 10, growth_interval=4)
        return model, optimizer, scaler, LocalSteps(model, optimizer, "terse", every=4, scaler=scaler, buffers="round", **options)

    def train(self, model, scaler, local, steps, first=0):
        """Digests after the steps that end a round."""
        torch, out = self.torch, []
        for step in range(first, first + steps):
            draw = torch.Generator().manual_seed(1000 * step + self.rank)
            x, y = torch.randn(32, 70, generator=draw).to(self.device), torch.randint(10, (32,), generator=draw).to(self.device)
            local.zero_grad()
            with torch.autocast(self.device.type, torch.bfloat16 if self.flags.emulated else torch.float16):
                loss = torch.nn.functional.cross_entropy(model(x).float(), y)
            (loss if scaler is None else scaler.scale(loss)).backward()
            local.step()
            if scaler is not None:
                scaler.update()
            if (step + 1) % 4 == 0:
                out.append(self.digest(model))
        return out

    def check_training(self, **options):
        torch = self.torch
        model, optimizer, scaler, local = self.made(**options)
        digests, saved = self.train(model, scaler, local, 6), io.BytesIO()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "local": local.state_dict(),
                    "scaler": None if scaler is None else scaler.state_dict()}, saved)
        digests += self.train(model, scaler, local, 6, first=6)
        local.synchronize()
        straight = self.digest(model)
        saved.seek(0)
        state = torch.load(saved, weights_only=False)
        model, optimizer, scaler, local = self.made(**options)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        local.load_state_dict(state["local"])
        if scaler is not None:
            scaler.load_state_dict(state["scaler"])
        self.train(model, scaler, local, 6, first=6)
        local.synchronize()
        resumed = self.digest(model)
        # Overlapped, ranks keep a share of their own weights until synchronize().
        same = self.are_same(straight if options else [*digests, straight])
        self.say(f"training, {options}", same and resumed == straight,
                 f"replicas are the {'same' if same else 'NOT same'}; resumed inside a round: {'the same bits' if resumed == straight else 'OTHER bits'}")

    # ---- sharded -------------------------------------------------------------------------------------------------------------------

    def check_sharded(self):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from tersegrad.torch import LocalSteps
        torch = self.torch
        mesh = init_device_mesh(self.device.type, (2, self.world // 2), mesh_dim_names=("replica", "shard"))
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(70, 131), torch.nn.ReLU(), torch.nn.Linear(131, 10))
        fully_shard(model, mesh=mesh["shard"])
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        local, good = LocalSteps(model, optimizer, "ef+topk@0.05", every=4, process_group=mesh["replica"].get_group()), True
        for step in range(8):
            draw = torch.Generator().manual_seed(1000 * step + self.rank)
            local.zero_grad()
            model(torch.randn(32, 70, generator=draw).to(self.device)).square().mean().backward()
            local.step()
            if (step + 1) % 4 == 0:
                whole = torch.cat([p.detach().full_tensor().flatten().cpu() for p in model.parameters()])
                good = self.are_same(whole.numpy().tobytes()) and good
        self.say("sharded", good, f"replicas of {self.world // 2} shards are {'the same' if good else 'NOT the same'} after {local.exchanges} exchanges")

    def run(self):
        for recipe in ("dense", "terse", "adacomp", "ef+topk@0.01", "sparseloco"):
            self.check_moves(recipe, every=3)
        self.check_moves("terse", every="1,2:3", outer="nesterov@lr=0.7,momentum=0.9")
        self.check_moves("terse", "bfloat16", every=3)
        self.check_moves("adacomp", every=3, overlap=True, fragments=3, mix=0.25)
        self.check_training()
        self.check_training(overlap=True, fragments=2)
        if self.world == 4:
            self.check_sharded()


if __name__ == "__main__":
    one_gpu.main(Rank, __doc__)
