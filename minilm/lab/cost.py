"""What does attention cost, and from which length on does it matter?

Every position scores every position, so dot products grow with the square of the length, while
all else grows in proportion to it. `python -m minilm cost` counts both for any shape.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from minilm.config import ModelConfig
from minilm.errors import UserError
from minilm.lab.drawing import check_picture, line, new_figure, save, tidy
from minilm.lab.options import print_json
from minilm.options import File, Flag, Input, Number, read_options
from minilm.settings import load_config

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FLOAT = 4  # bytes of a float32


@dataclass(frozen=True)
class Options:
    """Dot products, operations and memory of a model, part by part.

    Example: python -m minilm cost --context 4096 --width 512 --heads 8
    """

    file: Input = None
    """settings file of a run, such as configs/base.toml, to take the shape from"""
    context: Number = None
    """length T of the text (4096)"""
    layers: Number = None
    """number of blocks L (6)"""
    heads: Number = None
    """heads H of each block; divides the width (8)"""
    width: Number = None
    """model width D (512)"""
    vocabulary: Number = None
    """number of characters V (100)"""
    batch: Number = None
    """texts at once B (1)"""
    json: Flag = False
    """print numbers for programs instead of text for people"""
    plot: File = None
    """draw operations against the length into this .svg, .png or .pdf"""


@dataclass(frozen=True)
class Shape:
    """All that the cost depends on."""

    context: int = 4096
    layers: int = 6
    heads: int = 8
    width: int = 512
    vocabulary: int = 100
    batch: int = 1
    learned_positions: bool = True
    feed_forward: bool = True


class Part(NamedTuple):
    """One row of the table: what a part has and does in one forward pass over the batch."""

    name: str
    weights: int
    products: int  # multiplications, each with an addition: two operations


def main(argv: list[str] | None = None) -> int:
    """The command."""
    options = read_options(Options, "cost", argv)
    check_picture(options.plot)
    shape = shape_of(options)
    if options.json:
        print_json(as_data(shape))
    else:
        print("\n".join(page(shape)))
    if options.plot:
        save(draw(shape), options.plot)
    return 0


def shape_of(options: Options) -> Shape:
    """The shape that a file and flags ask for, or a UserError with all that is wrong with it."""
    given = {
        name: getattr(options, name)
        for name in ("context", "layers", "heads", "width", "vocabulary", "batch")
        if getattr(options, name) is not None
    }
    model = load_config(options.file).model if options.file else ModelConfig()
    if model.architecture != "transformer" or model.score != "dot":
        what = "a recurrent model" if model.architecture != "transformer" else f"the {model.score} score"
        raise UserError(f"{options.file}: {what} costs otherwise; `cost` counts attention by dot products")
    shape = replace(shape_in(model) if options.file else Shape(), **given)
    problems = [f"--{name} {value}: must be at least 1" for name, value in given.items() if value < 1]
    if not problems and shape.width % shape.heads:
        problems = [f"width {shape.width} cannot be split into {shape.heads} heads of equal width"]
    if problems:
        raise UserError("\n".join(problems))
    return shape


def shape_in(model: ModelConfig) -> Shape:
    """What the settings of a run say of its shape; the vocabulary is in its text."""
    return Shape(
        context=model.context,
        layers=model.n_layers,
        heads=model.n_heads,
        width=model.width,
        learned_positions=model.position == "learned",
        feed_forward=model.feed_forward != "none",
    )


def dot_products(context: int, *, causal: bool = False) -> int:
    """How many queries meet how many keys: per head, layer, text and forward pass."""
    return context * (context + 1) // 2 if causal else context**2


def parts(shape: Shape) -> list[Part]:
    """Weights and multiplications, part by part. Biases, norms, the softmax and GELU are left out."""
    d, layers = shape.width, shape.layers
    positions = shape.batch * shape.context
    pairs = shape.batch * dot_products(shape.context)
    wide = 8 * d**2 if shape.feed_forward else 0
    return [
        Part("embedding", (shape.vocabulary + shape.learned_positions * shape.context) * d, 0),
        Part("attention: query, key, value, output", layers * 4 * d**2, layers * positions * 4 * d**2),
        Part("attention: scores", 0, layers * pairs * d),
        Part("attention: mixture", 0, layers * pairs * d),
        Part("feed-forward", layers * wide, layers * positions * wide),
        Part("head", shape.vocabulary * d, positions * shape.vocabulary * d),
    ]


def memory(shape: Shape) -> dict[str, int]:
    """Bytes in float32 of what a training step or a generation keeps."""
    parameters = FLOAT * sum(part.weights for part in parts(shape))
    rows = shape.batch * shape.heads * shape.context
    return {
        "parameters": parameters,
        "gradients and the two moments of AdamW": 3 * parameters,
        "weights T x T, one layer": FLOAT * rows * shape.context,
        "weights T x T, all layers, kept for the backward pass": FLOAT * rows * shape.context * shape.layers,
        "what tiled keeps instead: one number per row": FLOAT * rows * shape.layers,
        "keys and values cached while writing": 2 * FLOAT * shape.batch * shape.context * shape.width * shape.layers,
    }


def even_length(shape: Shape) -> float:
    """The length at which scores and mixtures cost as much as everything else together."""
    square = 12 if shape.feed_forward else 4
    rest = square * shape.width**2 * shape.layers + shape.vocabulary * shape.width  # per position
    return rest / (2 * shape.width * shape.layers)


def page(shape: Shape) -> list[str]:
    """All that the command prints."""
    pairs, causal = dot_products(shape.context), dot_products(shape.context, causal=True)
    each = shape.batch * shape.layers * shape.heads
    lines = [
        f"B = {shape.batch}, T = {shape.context:,}, L = {shape.layers}, H = {shape.heads}, D = {shape.width}, "
        f"K = {shape.width // shape.heads}, V = {shape.vocabulary}",
        "",
        "Dot products of a query with a key              all pairs                   causal",
        f"   per head, layer and forward pass   {pairs:>19,}   {causal:>22,}",
        f"   per forward pass                   {pairs * each:>19,}   {causal * each:>22,}",
        "   Causal halves it, but for the diagonal: T (T + 1) / 2 instead of T^2. Only a kernel that skips what is",
        "   hidden saves that half: `tiled` and `fused` do, `explicit` computes all pairs and hides half of them.",
        "",
        "Forward pass, all pairs                       weights              operations    share",
    ]
    table = parts(shape)
    total = sum(part.products for part in table)
    for name, weights, products in (*table, Part("total", sum(p.weights for p in table), total)):
        lines.append(f"   {name:<38}{weights:>14,}   {2 * products:>21,}   {products / total:6.1%}")
    lines += [
        "   A multiplication and an addition are two operations. The backward pass takes about twice as many.",
        "",
    ]
    lines += ["Memory, float32"]
    lines += [f"   {name:<55}{size:>20,} bytes   {in_words(size):>10}" for name, size in memory(shape).items()]
    even = even_length(shape)
    return [
        *lines,
        "",
        f"The quadratic part, scores and mixture, outweighs all else from T = {even:,.0f} on (about 6 D).",
    ]


def in_words(size: int) -> str:
    """Bytes in a unit that is easily read."""
    amount, units = float(size), ["B", "KiB", "MiB", "GiB", "TiB"]
    while amount >= 1024 and len(units) > 1:
        amount /= 1024
        units.pop(0)
    return f"{amount:.1f} {units[0]}"


def as_data(shape: Shape) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "shape": asdict(shape),
        "dot_products": {
            "all_pairs": dot_products(shape.context),
            "causal": dot_products(shape.context, causal=True),
        },
        "parts": [{"name": p.name, "weights": p.weights, "operations": 2 * p.products} for p in parts(shape)],
        "bytes": memory(shape),
        "even_length": even_length(shape),
    }


def draw(shape: Shape) -> Figure:
    """Operations of one forward pass against the length: what grows with T, and what with T^2."""
    figure = new_figure()
    axes = figure.add_subplot()
    lengths = [2**n for n in range(6, 18)]
    tables = [parts(replace(shape, context=length)) for length in lengths]
    names = ("attention: scores", "attention: mixture")
    quadratic = [2 * sum(part.products for part in table if part.name in names) for table in tables]
    linear = [2 * sum(part.products for part in table if part.name not in names) for table in tables]
    line(axes, lengths, linear, 0, "all else: T")
    line(axes, lengths, quadratic, 1, "scores and mixture: T^2")
    even = even_length(shape)
    axes.axvline(even, color="0.5", linewidth=1, linestyle=":")
    axes.text(even, min(quadratic), f" equal at T = {even:,.0f}", color="0.3", fontsize=9)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    tidy(axes, f"One forward pass, {shape.layers} layers of width {shape.width}", "length T", "operations")
    axes.legend(frameon=False)
    return figure
