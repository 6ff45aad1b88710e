"""How is a trained model taken elsewhere?

`python -m minilm export RUN --to gpt2 OUT` writes a folder as the hub has them: weights and
settings of a GPT-2, a tokenizer, a model card. `transformers` reads it, and needs no minilm.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from minilm.errors import UserError
from minilm.options import RunFolder, read_options

if TYPE_CHECKING:
    from minilm.runs import LoadedRun
    from minilm.vocabulary import Units


@dataclass(frozen=True)
class Options:
    """Write a trained model as a folder that `transformers` loads.

    $ python -m minilm export runs/base --to gpt2 base-gpt2
    """

    run: RunFolder
    """folder of a run, or of one of its checkpoints"""
    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """folder to make"""
    to: Literal["gpt2"] = "gpt2"
    """whose format"""
    which: Literal["best", "last"] = "best"
    """the checkpoint with the lowest validation loss, or the last one"""


def main(argv: list[str] | None = None) -> int:
    """The command."""
    options = read_options(Options, "export", argv)
    from minilm.interop import refuse_unheld
    from minilm.runs import load_run

    if options.out.exists():
        raise UserError(f"{options.out}: is there already; name a folder that is not")
    run = load_run(options.run, options.which)
    refuse_unheld(run.config.model, str(options.run))
    write_folder(run, options.out)
    print(f"{options.out}: transformers.AutoModelForCausalLM.from_pretrained({str(options.out)!r}) loads it")
    return 0


def write_folder(run: LoadedRun, out: Path) -> None:
    """Write `out` whole or not at all."""
    from safetensors.torch import save_file

    from minilm.interop import gpt2_settings, to_gpt2

    settings = gpt2_settings(run.config.model, len(run.vocabulary))
    tokenizer = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": run.config.model.context,
    }
    texts = {
        "config.json": as_json(settings),
        "generation_config.json": as_json({"do_sample": False}),
        "tokenizer.json": tokenizer_json(run.vocabulary),
        "tokenizer_config.json": as_json(tokenizer),
        "README.md": model_card(run, out.resolve().name),
    }
    weights = to_gpt2(run.model.state_dict(), run.config.model.n_layers)
    aside = out.with_name(f".{out.name}.new")
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        for file, text in texts.items():
            (aside / file).write_text(text, encoding="utf-8", newline="")
        save_file(weights, aside / "model.safetensors", metadata={"format": "pt"})
        aside.rename(out)
    except OSError as error:
        raise UserError(f"{out}: cannot be written: {error.strerror or error}") from None


def as_json(content: Any) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def tokenizer_json(vocabulary: Units) -> str:
    """The tokenizer.json that numbers as `vocabulary` does; a character that it lacks is an error there as well."""
    from minilm.vocabulary import Vocabulary, byte_signs, import_tokenizers

    library = import_tokenizers()
    if isinstance(vocabulary, Vocabulary):
        numbers = {character: number for number, character in enumerate(vocabulary.characters)}
        tokenizer = library.Tokenizer(library.models.WordLevel(numbers))
        # Each character is a word of its own; a dot would leave out newlines.
        tokenizer.pre_tokenizer = library.pre_tokenizers.Split(library.Regex(r"[\s\S]"), "isolated")
        tokenizer.decoder = library.decoders.Fuse()
        return tokenizer.to_str(pretty=True)
    if vocabulary.unit == "bpe":
        return vocabulary.definition
    numbers = {sign: byte for byte, sign in enumerate(byte_signs())}
    tokenizer = library.Tokenizer(library.models.BPE(numbers, []))
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    return tokenizer.to_str(pretty=True)


def model_card(run: LoadedRun, name: str) -> str:
    """The README.md of the folder, with the head that the hub reads."""
    from minilm import __version__

    settings, model, training = run.config.corpus, run.config.model, run.config.training
    data = [f"datasets:\n- {settings.name}"] if settings.source == "hub" else []
    head = ["library_name: transformers", "pipeline_tag: text-generation", "tags:\n- minilm\n- gpt2", *data]
    files = ", ".join(Path(path).name for path in settings.path)
    text = {
        "hub": f"{settings.name} (split {settings.split})",
        "file": files,
        "riverbank": "Riverbank, the toy language that comes with minilm",
        "none": "nothing yet: it was imported",
    }[settings.source]
    noun = run.vocabulary.noun
    loss = "not known" if run.loss is None else f"{run.loss:.4f} nats per {noun}"
    strangers = "A prompt can hold only characters that the text has. " if run.vocabulary.unit == "char" else ""
    parameters = sum(parameter.numel() for parameter in run.model.parameters())
    return f"""---
{chr(10).join(head)}
---

# {name}

A small language model that writes on in the manner of its text, {noun} by {noun}. It was trained by
minilm {__version__} and is stored as a GPT-2, so `transformers` loads it without minilm.

| | |
|---|---|
| trained on | {text} |
| training | {run.step} steps of {training.batch_size * training.accumulation} windows, {training.optimizer} |
| validation loss | {loss} |
| shape | {model.n_layers} layers, {model.n_heads} heads, width {model.width}, context {model.context} |
| parameters | {parameters:,} |
| vocabulary | {len(run.vocabulary)} different {noun}s |

```python
from transformers import pipeline

write = pipeline("text-generation", {name!r})  # this folder, or OWNER/{name} once it is on the hub
prompt = {run.vocabulary.start!r}  # what the text is to begin with
answers = write(prompt, max_new_tokens={max(1, model.context - 1)}, do_sample=True, temperature=0.8)
print(answers[0]["generated_text"])
```

{strangers}Prompt and answer together have to fit into the context of {model.context} {noun}s.
The model knows nothing but the style of its text, and what it says need not be true.
"""
