"""Settings of a training, with their defaults."""

DEFAULTS = {
    "data": "cifar10",       # a set of data.py
    "model": "resnet18",     # a model of nets.py
    "width": None,           # of the model; None: its own
    "dropout": 0.0,          # of models that have it
    "recipe": "dense",
    "rules": None,           # {pattern of names: recipe}
    "exchange": None,        # None: chosen by the recipe
    "workers": 4,
    "batch": 64,             # per worker
    "length": 128,           # of a text in a batch
    "epochs": 30,
    "steps": None,           # of an epoch, for texts; None: as many as its symbols make
    "optimizer": "sgd",      # or adamw
    "rate": 0.1,             # after the warm-up; a cosine to 0 from there
    "warmup_epochs": 2.0,
    "momentum": 0.9,         # of adamw: the first beta
    "nesterov": True,        # of sgd
    "beta2": 0.99,           # of adamw
    "rare": False,           # of adamw: an element that comes after T steps of 0 counts as T equal ones
    "decay": 5e-4,           # weight decay, of all parameters; of adamw: decoupled
    "clip": None,            # norm to which a gradient is clipped before a step of the optimizer
    "local_steps": 1,        # steps of each worker by itself between exchanges; or a schedule, "1,200:4"
    "outer": "average",      # or nesterov@lr=,momentum=: what becomes of the average of local steps
    "momentum_every": 0,     # exchanges between averages of the workers' momentum; 0: never
    "momentum_recipe": "fp16",
    "closing": None,         # recipe of a last exchange, of what residuals still hold
    "seed": 0,
    "precision": "bf16",     # of forward and backward: bf16 by autocast, or fp32
    "limit": None,           # use only so many training examples
}


def complete(settings):
    """All settings; what is not given is as in DEFAULTS."""
    unknown = set(settings) - set(DEFAULTS)
    if unknown:
        raise SystemExit(f"unknown settings: {', '.join(sorted(unknown))}")
    return dict(DEFAULTS, **settings)
