"""Tersegrad compresses the gradients that the workers of a data-parallel training job exchange.

Codec, decode and recipes work on NumPy arrays. `tersegrad.torch` is for PyTorch and is imported by itself.
`python -m tersegrad` runs the program, if it is in the package.
"""

from ._codec import Codec, decode, recipes
from ._library import Error, canonical, lib as _lib

__version__: str = _lib.tg_version().decode()
__all__ = ["Codec", "Error", "canonical", "decode", "recipes", "__version__"]
