"""BatchGen: a small, complete offline batch engine with a paged KV cache.

Importing this package loads neither torch nor a model; import the parts you need (``batchgen.models``,
``batchgen.attention``, ``batchgen.kv``, ...).
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
