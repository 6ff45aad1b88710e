"""Train a character language model.

$ python train.py                              the default: Riverbank, two minutes on a laptop
$ python train.py my.txt                       your own text
$ python train.py configs/no_mask.toml         an ablation
$ python train.py my.txt --model.n-layers 6    any setting is a flag
$ python train.py --resume                     go on where the last run stopped
"""

from __future__ import annotations

import sys

from minilm.errors import run_main
from minilm.train import main as train


def main() -> int:
    return train(sys.argv[1:], prog="python train.py")


if __name__ == "__main__":
    run_main(main)
