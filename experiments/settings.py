"""Settings of a training, with their defaults."""

DEFAULTS = {
    "data": "cifar10",       # a set of data.py
    "model": "resnet18",     # a model of nets.py
    "width": None,           # of the model; None: its own
    "recipe": "dense",
    "rules": None,           # {pattern of names: recipe}
    "exchange": None,        # None: chosen by the recipe
    "workers": 4,
    "batch": 64,             # per worker
    "epochs": 30,
    "rate": 0.1,             # after the warm-up; a cosine to 0 from there
    "warmup_epochs": 2.0,
    "momentum": 0.9,         # Nesterov
    "decay": 5e-4,           # weight decay, of all parameters
    "local_steps": 1,        # steps of each worker by itself between exchanges
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
