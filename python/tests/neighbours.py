"""A rank of a test of libraries around PyTorch (test_neighbours.py): trains a little, and prints a line of JSON.

    python3 -m torch.distributed.run --nproc-per-node 2 neighbours.py lightning|lightning-ignored|accelerate
"""

import hashlib
import json
import sys
import warnings

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tersegrad.torch import State, hook

STEPS = 3


def data():
    draw = torch.Generator().manual_seed(1)
    return TensorDataset(torch.randn(64, 20, generator=draw), torch.randint(0, 5, (64,), generator=draw))


def make_model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 5))


def tell(state, model, rank):
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    print(json.dumps({"rank": rank, "steps": state.stats()["total"]["steps"], "digest": hashlib.sha256(weights.numpy().tobytes()).hexdigest(),
                      "names": list(state.stats()["tensors"])}), flush=True)


def with_lightning(ignored):
    import lightning
    from lightning.pytorch.strategies import DDPStrategy

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = make_model()

        def training_step(self, batch, _):
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    class Compress(lightning.Callback):
        def __init__(self, recipe):
            self.state = State(recipe)  # before there is a process group

        def on_train_start(self, trainer, _):
            trainer.strategy.model.register_comm_hook(self.state, hook)

    compress = Compress("ef+topk@0.1")
    strategy = DDPStrategy(process_group_backend="gloo", **({"ddp_comm_state": compress.state, "ddp_comm_hook": hook} if ignored else {}))
    trainer = lightning.Trainer(accelerator="cpu", devices=2, strategy=strategy, max_steps=STEPS, logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False, callbacks=[] if ignored else [compress])
    module = Module()
    trainer.fit(module, DataLoader(data(), batch_size=8))
    tell(compress.state, module, trainer.global_rank)


def with_accelerate():
    from accelerate import Accelerator
    state = State("ef+topk@0.1")  # before there is a process group
    accelerator = Accelerator(cpu=True)
    model = make_model()
    wrapped, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(data(), batch_size=8))
    wrapped.register_comm_hook(state, hook)
    for _, (x, y) in zip(range(STEPS), loader):
        optimizer.zero_grad()
        accelerator.backward(nn.functional.cross_entropy(wrapped(x), y))
        optimizer.step()
    tell(state, model, accelerator.process_index)
    accelerator.end_training()


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    with_accelerate() if sys.argv[1] == "accelerate" else with_lightning(sys.argv[1] == "lightning-ignored")
