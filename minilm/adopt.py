"""How does a stranger's GPT-2 become a run of ours?

`python -m minilm import FOLDER --out RUN` reads a folder in the format of `transformers` and
writes a run at step 0: it can be sampled as it is, and trained further on any text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from minilm.errors import UserError
from minilm.options import read_options

if TYPE_CHECKING:
    from torch import Tensor

    from minilm.config import Config
    from minilm.vocabulary import Units

# A model that has learned already is moved gently.
TRAINING = {"steps": 200, "optimizer": "adamw", "learning_rate": 3e-4, "warmup": 20, "evaluate_every": 50}


@dataclass(frozen=True)
class Options:
    """Make a run of a GPT-2 in a folder on this disk, which then can be sampled, and trained further.

    $ hf download openai-community/gpt2 --local-dir gpt2
    $ python -m minilm import ./gpt2 --out runs/gpt2
    $ python train.py runs/gpt2/config.toml my.txt --out runs/gpt2 --resume
    """

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """a folder on this disk that holds config.json, model.safetensors and a tokenizer"""
    out: Annotated[Path, tyro.conf.arg(metavar="RUN")]
    """folder of the run"""


def main(argv: list[str] | None = None) -> int:
    """The command."""
    options = read_options(Options, "import", argv)
    from minilm import runs
    from minilm.config import CorpusConfig
    from minilm.interop import from_gpt2, model_settings
    from minilm.paths import packaged
    from minilm.settings import load_config

    if runs.is_used(options.out):
        raise UserError(f"{options.out}: holds a run already; name another folder with --out")
    runs.check_folder(options.out, resume=False, overwrite=False)
    model, problems = model_settings(read_json(options.folder / "config.json"))
    if model is None:
        raise UserError("\n".join(f"{options.folder / 'config.json'}: {problem}" for problem in problems))
    vocabulary = read_tokenizer(options.folder)
    weights = from_gpt2(read_weights(options.folder), model.n_layers, str(options.folder))
    spare = len(weights["head.weight"]) - len(vocabulary)
    if spare < 0:
        raise UserError(f"{options.folder}: the tokenizer has {-spare} more tokens than the model")
    if spare:
        print(f"note: the last {spare} rows of the vocabulary have no token and are left out")
        for name in ("embedding.token_embedding.weight", "head.weight"):
            weights[name] = weights[name][: len(vocabulary)]
    base = load_config(packaged("configs/shakespeare.toml"))
    corpus = CorpusConfig.model_validate({"source": "none", "unit": vocabulary.unit})
    config = base.model_copy(
        update={"model": model, "corpus": corpus, "training": base.training.model_copy(update=TRAINING)}
    )
    write_run(options.out, config, vocabulary, weights)
    print(f"{options.out}: a run at step 0. Write with it: python -m minilm sample {options.out}")
    print(f"Train it: python train.py {options.out / 'config.toml'} TEXT --out {options.out} --resume")
    return 0


def write_run(out: Path, config: Config, vocabulary: Units, weights: dict[str, Tensor]) -> None:
    """The folder of a run that has not taken a step."""
    from minilm import __version__, runs
    from minilm.checkpoint import write_checkpoint
    from minilm.settings import to_toml

    runs.load_weights(runs.build_model(config, len(vocabulary)), weights, "the folder's model")
    state = {"step": 0, "config": config.model_dump(), "vocabulary": vocabulary.definition}
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "manifest.json").write_text(json.dumps({"minilm": __version__}), encoding="utf-8")
        (out / "config.toml").write_text(to_toml(config), encoding="utf-8")
        write_checkpoint(out / "last", weights, {}, state)
    except OSError as error:
        raise UserError(f"{out}: cannot be written to: {error.strerror or error}") from None


def read_json(file: Path) -> dict[str, Any]:
    """The content of one file of the folder."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        advice = "wanted a folder on this disk, such as hf download OWNER/NAME --local-dir FOLDER makes"
        raise UserError(f"{file}: cannot be read: {error.strerror}; {advice}") from None
    except (ValueError, RecursionError):
        raise UserError(f"{file}: is not JSON") from None
    if not isinstance(content, dict):
        raise UserError(f"{file}: holds no settings")
    return content


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All tensors of the folder, which may lie in several files."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise UserError(
            f"{folder}: holds no .safetensors file; other formats can run code and are not read: "
            "load the model with transformers, and save it with save_pretrained"
        )
    weights: dict[str, Tensor] = {}
    for file in files:
        try:
            weights |= load_file(file)
        except (OSError, SafetensorError, ValueError) as error:
            raise UserError(f"{file}: cannot be read: {error}") from None
    return weights


def read_tokenizer(folder: Path) -> Units:
    """The vocabulary of a folder: characters, as we export them, or pieces of bytes, as GPT-2 has them."""
    from minilm.vocabulary import Pieces, Vocabulary, byte_signs, import_tokenizers

    library = import_tokenizers()
    file = folder / "tokenizer.json"
    if file.exists():
        tokenizer = read_json(file)
    else:
        pair = [folder / name for name in ("vocab.json", "merges.txt")]
        if not all(path.exists() for path in pair):
            raise UserError(f"{folder}: holds neither tokenizer.json nor vocab.json with merges.txt")
        made = library.Tokenizer(library.models.BPE.from_file(*map(str, pair)))
        made.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = library.decoders.ByteLevel()
        tokenizer = json.loads(made.to_str())
    model, decoder = tokenizer.get("model") or {}, tokenizer.get("decoder") or {}
    numbers = model.get("vocab")
    if model.get("type") == "WordLevel" and isinstance(numbers, dict) and all(len(token) == 1 for token in numbers):
        return Vocabulary("".join(sorted(numbers, key=numbers.__getitem__)))
    if model.get("type") != "BPE" or decoder.get("type") != "ByteLevel":
        raise UserError(f"{file}: neither characters nor byte pairs, but {model.get('type')}, {decoder.get('type')}")
    if numbers == {sign: byte for byte, sign in enumerate(byte_signs())} and not tokenizer.get("added_tokens"):
        return Pieces()
    return Pieces(json.dumps(tokenizer, ensure_ascii=False))
