"""LGC with small layers, which codes after a few steps; the presets learn for thousands."""

LAYERS = dict(e1=4, e2=4, e3=4, e4=4, z=1, d1=4, d2=4, d3=4, d4=4)


def quick_lgc(form):
    """The recipe. The form is "ring" or "server"."""
    layers = ",".join(f"{name}={n}" for name, n in LAYERS.items())
    return f"ef+topk@0.002,coords=shared+autoencoder@{form},dense=1,learn=2,enough=1e9,{layers}"
