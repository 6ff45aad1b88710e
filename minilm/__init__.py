"""minilm: a transformer language model small enough to see why every piece is there."""

__version__ = "0.1.0"
