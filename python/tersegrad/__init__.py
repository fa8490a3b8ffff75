"""Tersegrad: workers of a data-parallel training job say less to each other and learn the same.

Codec, decode and recipes work on NumPy arrays; `tersegrad.torch` is for PyTorch and is imported by itself.
"""

from ._codec import Codec, decode, recipes
from ._library import Error, canonical, lib as _lib

__version__ = _lib.tg_version().decode()
__all__ = ["Codec", "Error", "canonical", "decode", "recipes", "__version__"]
