"""What can be set, and what is a sensible value?

Settings are frozen pydantic models (see settings.py for the files that they are kept in).
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Settings(BaseModel):
    """What all tables share: nothing unknown, nothing converted, nothing changed later."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


# What a recurrent model does not have: it reads from left to right, so it knows the order and sees no future.
ATTENTION_ONLY = ("n_heads", "position", "causal", "scaled", "score", "backend")


class ModelConfig(Settings):
    """The transformer, or its recurrent rival."""

    architecture: Literal["transformer", "recurrent"] = Field("transformer", description="attention, or a GRU instead")
    n_layers: int = Field(3, ge=1, le=1000, description="number of blocks")
    n_heads: int = Field(2, ge=1, description="attention heads in each block; divides the width")
    width: int = Field(96, ge=1, le=65_536, description="model width D")
    context: int = Field(64, ge=1, le=1_000_000, description="characters that the model sees at once")
    position: Literal["learned", "sinusoidal", "rotary", "none"] = Field("learned", description="position embedding")
    causal: bool = Field(True, description="hide later positions from each position")
    scaled: bool = Field(True, description="divide attention scores by the square root of the key width")
    score: Literal["dot", "additive"] = Field("dot", description="of query and key: q . k or v . tanh(W q + U k)")
    feed_forward: Literal["gelu", "gelu_tanh", "squared_relu", "linear", "none"] = Field(
        "gelu", description="feed-forward part of each block"
    )
    residual: bool = Field(True, description="add each part's output to the stream instead of replacing it")
    norm: bool = Field(True, description="layer norm before each part and before the head")
    dropout: float = Field(0.0, ge=0, lt=1, description="share dropped while training")
    backend: Literal["auto", "explicit", "tiled", "fused"] = Field("auto", description="how attention is computed")

    @model_validator(mode="after")
    def heads_divide_width(self) -> ModelConfig:
        if self.architecture == "transformer" and self.width % self.n_heads:
            divisors = [n for n in range(1, min(self.width, 64) + 1) if self.width % n == 0]
            raise ValueError(
                f"width {self.width} cannot be split into n_heads {self.n_heads}: "
                f"{self.width} % {self.n_heads} = {self.width % self.n_heads}; "
                f"n_heads may be {', '.join(map(str, divisors))}"
            )
        return self

    @model_validator(mode="after")
    def rotary_has_pairs(self) -> ModelConfig:
        if self.position == "rotary" and self.width % (2 * self.n_heads):
            raise ValueError(
                f'position "rotary" turns numbers in pairs, and width {self.width} / n_heads {self.n_heads} is odd'
            )
        return self

    @model_validator(mode="after")
    def rival_has_what_is_asked_of_it(self) -> ModelConfig:
        if self.score == "additive" and self.backend not in ("auto", "explicit"):
            raise ValueError(
                f'backend "{self.backend}" has the dot product built in: score "additive" takes "explicit" or "auto"'
            )
        if self.score == "additive" and not self.scaled:
            raise ValueError('score "additive" is divided by nothing, so there is no scaled to turn off')
        changed = [name for name in ATTENTION_ONLY if getattr(self, name) != ModelConfig.model_fields[name].default]
        if self.architecture == "recurrent" and changed:
            raise ValueError(
                f'architecture "recurrent" has no {", ".join(changed)}, which are attention\'s: leave them out'
            )
        return self

    @model_validator(mode="after")
    def something_reaches_the_head(self) -> ModelConfig:
        if self.feed_forward == "none" and not self.residual:
            raise ValueError(
                'feed_forward "none" with residual false leaves nothing: the last part would add to nothing'
            )
        return self


class CorpusConfig(Settings):
    """The text."""

    source: Literal["riverbank", "file", "hub", "none"] = Field(
        "riverbank", description="where the text comes from; none: an imported model, which has no text yet"
    )
    path: tuple[str, ...] = Field((), strict=False, description="file: texts (.txt .jsonl .csv .parquet) or folders")
    name: str | None = Field(None, description="hub: name of the dataset, such as karpathy/tiny_shakespeare")
    config: str | None = Field(None, description="hub: configuration of the dataset")
    split: str = Field("train", description="hub: split of the dataset")
    revision: str | None = Field(None, description="hub: branch, tag or commit")
    column: str = Field("text", description="hub, .jsonl, .csv, .parquet: the column that holds the text")
    characters: int = Field(
        1_000_000, ge=1, le=10**10, description="riverbank: characters to generate; hub: the most that are read"
    )
    validation: tuple[str, ...] = Field((), strict=False, description="texts or folders to validate on")
    validation_fraction: float = Field(0.1, gt=0, lt=1, description="else share of the text, its end, to validate on")
    unit: Literal["char", "byte", "bpe"] = Field("char", description="what the text is cut into; bpe: byte pairs")
    vocabulary: int = Field(1024, ge=256, le=1_000_000, description="bpe: the most pieces that are learned")
    language: str | None = Field(None, description="riverbank: TOML of the language; none for the packaged one")

    @model_validator(mode="after")
    def source_has_what_it_needs(self) -> CorpusConfig:
        if self.source == "file" and not self.path:
            raise ValueError('source "file" needs a path')
        if self.source == "hub" and not self.name:
            raise ValueError('source "hub" needs the name of a dataset')
        if self.source == "riverbank" and (self.unit != "char" or self.validation):
            raise ValueError(
                'source "riverbank" is known character by character, to its end: '
                'it takes unit "char" and no validation of its own; use a text for others'
            )
        return self


class TrainingConfig(Settings):
    """The fit."""

    steps: int = Field(600, ge=1, le=10**12, description="optimizer steps")
    batch_size: int = Field(48, ge=1, le=10**6, description="windows in one forward pass")
    accumulation: int = Field(1, ge=1, le=10**6, description="forward passes whose gradients make one step")
    optimizer: Literal["muon", "adamw"] = Field(
        "muon", description="muon: Muon for matrices of blocks, AdamW for the rest"
    )
    learning_rate: float = Field(5e-3, gt=0, description="peak learning rate of AdamW")
    muon_learning_rate: float = Field(0.02, gt=0, description="peak learning rate of Muon")
    warmup: int = Field(
        20,
        ge=0,
        le=10**12,
        description="steps over which the learning rate rises to the peak; a shorter run only rises",
    )
    schedule: Literal["linear", "cosine", "constant"] = Field(
        "linear", description="shape of the fall of the learning rate"
    )
    decay: float = Field(1.0, ge=0, le=1, description="share of the steps, at the end, over which it falls")
    final_fraction: float = Field(0.01, ge=0, le=1, description="share of the peak learning rate left at the end")
    weight_decay: float = Field(0.0, ge=0, description="decay of matrices and embeddings, times the learning rate")
    beta2: float = Field(0.95, ge=0, lt=1, description="memory of AdamW's squared gradients")
    clip: float = Field(1.0, gt=0, description="largest norm of the gradient; longer ones are shortened to it")
    evaluate_every: int = Field(100, ge=1, le=10**12, description="steps between evaluations, each of which saves")
    evaluation_characters: int = Field(131_072, ge=1, le=10**12, description="most of the validation part to score")
    sample_every: int = Field(200, ge=1, le=10**12, description="steps between samples")
    sample_length: int = Field(200, ge=1, le=10**6, description="characters of a sample")
    seed: int = Field(0, ge=0, lt=2**63, description="seed of every random stream")
    device: str = Field("auto", description="auto, cpu, cuda, cuda:1, mps")
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="of matrix products in training; auto takes bfloat16 where the hardware is made for it"
    )
    threads: int = Field(0, ge=0, le=4096, description="CPU threads; 0 leaves the choice to torch")


class Claim(Settings):
    """Where one figure of an arm is expected: alone, or minus or over the same figure of its control."""

    figure: str = Field(description="name of the figure (see lab/figures.py)")
    compare: Literal["alone", "difference", "ratio"] = Field("alone", description="with the control, or not")
    above: float | None = Field(None, description="the bound that it lies above")
    below: float | None = Field(None, description="or the bound that it lies below")

    @model_validator(mode="after")
    def has_one_bound(self) -> Claim:
        if (self.above is None) == (self.below is None):
            raise ValueError("needs one bound, either above or below")
        if self.compare == "ratio" and self.bound <= 0:
            raise ValueError(f"a ratio is compared with a factor above 0, not {self.bound}")
        return self

    @property
    def bound(self) -> float:
        return self.above if self.above is not None else self.below  # type: ignore[return-value]


class ExpectConfig(Settings):
    """What an ablation is expected to show, written down before it runs."""

    formula: str = Field(description="the one formula that changes")
    symptom: str = Field(description="what will be seen, in one sentence")
    claims: tuple[Claim, ...] = Field(strict=False, min_length=1, description="what is measured and judged")


class Config(Settings):
    """All that defines a run, and what it is run for."""

    model: ModelConfig = ModelConfig()
    corpus: CorpusConfig = CorpusConfig()
    training: TrainingConfig = TrainingConfig()
    # What for: no part of what a run does, so neither flags nor kept with it, and not taken over from a base.
    control: str | None = Field(None, exclude=True, description="the run it is compared with: a file, without .toml")
    expect: ExpectConfig | None = Field(None, exclude=True)
