"""How does the same model live in GPT-2's clothes?

GPT-2 (Radford et al. 2019) is this model under other names: query, key and value stand in one
matrix, `c_attn`, and matrices are kept the other way round. So weights go over and come back
unchanged to the bit, and `transformers` can hold what we train. What it cannot hold is refused.
"""

from __future__ import annotations

from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from minilm.config import ModelConfig
from minilm.errors import UserError

# What GPT-2 calls the settings that are numbers.
SIZES = {"n_layers": "n_layer", "n_heads": "n_head", "width": "n_embd", "context": "n_positions"}
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_tanh": "gelu_new",
    "squared_relu": "relu2",
    "linear": "linear",
}  # feed_forward -> activation_function
# Settings that may have more values than their default; dropout and backend leave the function as it is.
HELD: dict[str, tuple[Any, ...]] = {"feed_forward": tuple(ACTIVATIONS), "scaled": (True, False)}
FREE = (*SIZES, "dropout", "backend")
# What GPT-2 calls the parts of a block; each has a weight and a bias.
LINEAR = {"attention.output": "attn.c_proj", "feed_forward.up": "mlp.c_fc", "feed_forward.down": "mlp.c_proj"}
NORMS = {"attention_norm": "ln_1", "feed_forward_norm": "ln_2"}
ENDS = {
    "embedding.token_embedding.weight": "wte.weight",
    "embedding.position_embedding": "wpe.weight",
    "final_norm.weight": "ln_f.weight",
    "final_norm.bias": "ln_f.bias",
}
JOINED = ("attention.query", "attention.key", "attention.value")  # c_attn
HEAD = "lm_head.weight"


def refuse_unheld(model: ModelConfig, where: str) -> None:
    """Raise a UserError that names every setting that no GPT-2 has."""
    problems = []
    for name, field in ModelConfig.model_fields.items():
        value, held = getattr(model, name), HELD.get(name, (field.default,))
        if name not in FREE and value not in held:
            wanted = " or ".join(map(repr, held))
            problems.append(f"{where}: GPT-2 cannot hold model.{name} = {value!r}, only {wanted}")
    if problems:
        raise UserError("\n".join(problems))


def gpt2_settings(model: ModelConfig, vocabulary: int) -> dict[str, Any]:
    """The content of the config.json that `transformers` reads."""
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": vocabulary,
        **{theirs: getattr(model, ours) for ours, theirs in SIZES.items()},
        "n_inner": None,
        "activation_function": ACTIVATIONS[model.feed_forward],
        "scale_attn_weights": model.scaled,
        **dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), model.dropout),
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": False,
        # Our vocabularies have no number that means the start or end of a text.
        "bos_token_id": None,
        "eos_token_id": None,
        "torch_dtype": "float32",
    }


def to_gpt2(weights: dict[str, Tensor], n_layers: int) -> dict[str, Tensor]:
    """Our weights under the names and in the shapes of GPT2LMHeadModel."""
    found = {f"transformer.{theirs}": weights[ours] for ours, theirs in ENDS.items()}
    found[HEAD] = weights["head.weight"]
    for layer in range(n_layers):
        ours, theirs = f"blocks.{layer}.", f"transformer.h.{layer}."
        for kind in ("weight", "bias"):
            joined = torch.cat([weights[f"{ours}{part}.{kind}"] for part in JOINED])  # (3D, D) or (3D)
            found[f"{theirs}attn.c_attn.{kind}"] = turned(joined)
            for part, name in LINEAR.items():
                found[f"{theirs}{name}.{kind}"] = turned(weights[f"{ours}{part}.{kind}"])
            for part, name in NORMS.items():
                found[f"{theirs}{name}.{kind}"] = weights[f"{ours}{part}.{kind}"]
    return {name: tensor.contiguous() for name, tensor in found.items()}


# What a GPT-2 may also have and we do not, with the value that means "no".
LACKED = {
    "n_inner": None,
    "layer_norm_epsilon": 1e-5,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
}


def model_settings(theirs: dict[str, Any]) -> tuple[ModelConfig | None, list[str]]:
    """Our settings for the model that a config.json describes, or all that keeps us from holding it."""
    if theirs.get("model_type") != "gpt2":
        return None, [f"is of a {theirs.get('model_type')}, wanted a gpt2"]
    ours = {bend: name for name, bend in ACTIVATIONS.items()} | {"gelu_pytorch_tanh": "gelu_tanh"}
    bend = theirs.get("activation_function", "gelu_new")
    problems = [] if bend in ours else [f"activation_function {bend!r}: we have {', '.join(ours)}"]
    none = {**LACKED, "n_inner": (None, 4 * theirs.get("n_embd", 768))}
    for name, value in none.items():
        wanted = value if isinstance(value, tuple) else (value,)
        if name in theirs and theirs[name] not in wanted:
            problems.append(f"{name} {theirs[name]!r}: we have {' or '.join(map(repr, wanted))} only")
    if problems:
        return None, problems
    # The values of the first GPT-2 stand for what is not said.
    sizes = {"n_layer": 12, "n_head": 12, "n_embd": 768, "n_positions": 1024} | theirs
    try:
        settings = {
            **{name: sizes[their_name] for name, their_name in SIZES.items()},
            "feed_forward": ours[bend],
            "scaled": theirs.get("scale_attn_weights", True),
            "dropout": float(theirs.get("resid_pdrop", 0.1)),
        }
        return ModelConfig.model_validate(settings), []
    except (ValidationError, TypeError, ValueError) as error:
        return None, [str(error)]


def from_gpt2(weights: dict[str, Tensor], n_layers: int, where: str) -> dict[str, Tensor]:
    """GPT2LMHeadModel's weights under our names and in our shapes, in float32; a head that is tied is copied."""
    theirs = {name.removeprefix("transformer."): tensor.float() for name, tensor in weights.items()}
    try:
        found = {ours: theirs[name] for ours, name in ENDS.items()}
        found["head.weight"] = theirs.get(HEAD, theirs["wte.weight"])
        for layer in range(n_layers):
            ours, block = f"blocks.{layer}.", f"h.{layer}."
            for kind in ("weight", "bias"):
                joined = turned(theirs[f"{block}attn.c_attn.{kind}"])  # (3D, D) or (3D)
                for part, tensor in zip(JOINED, joined.chunk(3), strict=True):
                    found[f"{ours}{part}.{kind}"] = tensor
                for part, name in LINEAR.items():
                    found[f"{ours}{part}.{kind}"] = turned(theirs[f"{block}{name}.{kind}"])
                for part, name in NORMS.items():
                    found[f"{ours}{part}.{kind}"] = theirs[f"{block}{name}.{kind}"]
    except KeyError as error:
        raise UserError(f"{where}: lacks {error.args[0]}") from None
    # Each in memory of its own, as safetensors wants them.
    return {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in found.items()}


def turned(tensor: Tensor) -> Tensor:
    """The other way round, if it is a matrix."""
    return tensor.T if tensor.ndim == 2 else tensor
