"""Which figures does the prose of the book call by name?

Each is computed here, by the functions that the commands print from. None is typed in.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from minilm.__main__ import COMMANDS
from minilm.config import TrainingConfig
from minilm.corpus import baselines
from minilm.lab import saturation
from minilm.lab.arms import default_files, read_arms
from minilm.lab.book_code import MissingError
from minilm.lab.book_sources import Sources, Trained
from minilm.lab.claims import checks
from minilm.lab.claims_lookup import article
from minilm.lab.cost import Shape, dot_products, even_length
from minilm.lab.effect import choose_answers, effect
from minilm.lab.example import MATRICES, exact
from minilm.lab.finding import Finding
from minilm.lab.leak import future_leak
from minilm.lab.probes import ANSWERS
from minilm.lab.recall import BATCH, chance, language_with, rival_model, sentences, slope_through
from minilm.paths import packaged
from minilm.settings import load_config

FILTERS = {
    "fixed": lambda x, places: f"{x:.{places}f}",
    "digits": lambda x, count: f"{x:.{count}g}",
    "whole": lambda x: f"{round(x):,}",
    "percent": lambda x: f"{100 * x:.0f} %",
}
REFERENCES = {
    "ba2016": ("Ba et al. 2016", "Layer Normalization. arXiv:1607.06450"),
    "bahdanau2015": (
        "Bahdanau et al. 2015",
        "Neural Machine Translation by Jointly Learning to Align and Translate. arXiv:1409.0473",
    ),
    "cho2014": (
        "Cho et al. 2014",
        "Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine Translation. "
        "arXiv:1406.1078",
    ),
    "dao2022": (
        "Dao et al. 2022",
        "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness. arXiv:2205.14135",
    ),
    "dong2021": (
        "Dong et al. 2021",
        "Attention is not all you need: pure attention loses rank doubly exponentially with depth. arXiv:2103.03404",
    ),
    "haviv2022": (
        "Haviv et al. 2022",
        "Transformer Language Models without Positional Encodings Still Learn Positional Information. arXiv:2203.16634",
    ),
    "he2016": ("He et al. 2016", "Deep Residual Learning for Image Recognition. arXiv:1512.03385"),
    "hendrycks2016": ("Hendrycks and Gimpel 2016", "Gaussian Error Linear Units (GELUs). arXiv:1606.08415"),
    "jain2019": ("Jain and Wallace 2019", "Attention is not Explanation. arXiv:1902.10186"),
    "jordan2024": ("Jordan et al. 2024", "Muon: An optimizer for hidden layers in neural networks. Web page"),
    "loshchilov2019": ("Loshchilov and Hutter 2019", "Decoupled Weight Decay Regularization. arXiv:1711.05101"),
    "milakov2018": (
        "Milakov and Gimelshein 2018",
        "Online normalizer calculation for softmax. arXiv:1805.02867",
    ),
    "olsson2022": ("Olsson et al. 2022", "In-context Learning and Induction Heads. arXiv:2209.11895"),
    "radford2019": ("Radford et al. 2019", "Language Models are Unsupervised Multitask Learners. OpenAI"),
    "su2021": (
        "Su et al. 2021",
        "RoFormer: Enhanced Transformer with Rotary Position Embedding. arXiv:2104.09864",
    ),
    "vaswani2017": ("Vaswani et al. 2017", "Attention Is All You Need. arXiv:1706.03762"),
    "xiong2020": ("Xiong et al. 2020", "On Layer Normalization in the Transformer Architecture. arXiv:2002.04745"),
}


def values(sources: Sources) -> dict[str, Any]:
    """Every name that the prose may use."""
    config = base()
    return {
        "cite": cite,
        "look": look,
        "matrix": matrix,
        "flat": lambda word: exact(article())[1].flatness[place(article().words, word)],
        "found": found,
        "dead": saturation.DEAD,
        "base": config,
        "base_width": config.model.width,
        "arms": read_arms(default_files(), {}),
        "commands": COMMANDS,
        "dots": dot_products,
        "even": even_length(Shape()),
        "slope": slope,
        "chance": chance(1),
        "outcomes": sources.outcomes,
        "size_ratio": block_weights()["GPT-2 small"] / block_weights()["base"],
        **sweep_values(sources),
        **trained_values(sources),
    }


def base():
    return load_config(packaged("configs/base.toml"))


def place(names: Any, name: str) -> int:
    if name not in names:
        raise MissingError(f"{name}: not among {', '.join(names)}")
    return list(names).index(name)


def cite(key: str, where: str = "", *, within: bool = False) -> str:
    """A link to the reference, such as (Vaswani et al. 2017, 3.2.1); `within` a sentence without brackets."""
    if key not in REFERENCES:
        raise MissingError(f"{key}: there is no such reference")
    link = f"[{REFERENCES[key][0]}](#{key})" + (f", {where}" if where else "")
    return link if within else f"({link})"


def matrix(name: str) -> str:
    """One of the example's matrices, row by row."""
    if name not in MATRICES:
        raise MissingError(f"{name}: there is no such matrix")
    rows = (", ".join(f"{float(x):g}" for x in row) for row in getattr(article(), name))
    return "(" + " | ".join(rows) + ")"


def look(name: str, step: str, **how: Any) -> float:
    """A number of the four-word lookup: of a word, or of a dimension of the mixture."""
    example = article()
    names = example.dimensions if step == "mixture" else example.words
    return getattr(exact(example, **how)[0], step)[place(names, name)]


@cache
def finding(check: str) -> Finding:
    """What became of one claim (see claims.py)."""
    known = {found.__name__: found for found in checks()}
    if check not in known:
        raise MissingError(f"{check}: there is no such check among the claims")
    return known[check]()


def found(check: str, figure: str) -> float:
    """One figure of a claim."""
    figures = finding(check).figures
    if figure not in figures:
        raise MissingError(f"{figure!r}: {check} has no such figure")
    return figures[figure]


@cache
def slope(rival: str, gap: int) -> float:
    """What of the slope comes through a gap in an untrained model, as `distance` measures it."""
    language = language_with(gap)
    return slope_through(rival_model(rival, language, TrainingConfig()), sentences(language, BATCH, seed=0), gap)


def block_weights() -> dict[str, int]:
    """Weights in the matrices of the blocks, of some shapes."""
    shapes = {name: load_config(packaged(f"configs/{name}.toml")).model for name in ("base", "shakespeare")}
    sizes = {name: (model.n_layers, model.width) for name, model in shapes.items()}
    sizes["GPT-2 small"] = (12, 768)  # Radford et al. 2019, table 2
    return {name: 12 * layers * width**2 for name, (layers, width) in sizes.items()}


def sweep_values(sources: Sources) -> dict[str, Any]:
    """What there is of a sweep; empty without one."""
    if sources.sweep is None:
        return {"verdicts": [], "told": told, "seeds": [], "preliminary": False, "sweep_folder": ""}
    from minilm.lab.report_tables import verdicts

    sweep = sources.sweep
    names = {"seeds": sweep.seeds, "preliminary": sweep.preliminary, "sweep_folder": sweep.folder.name}
    return {"verdicts": verdicts(sweep), "told": told, **names}


def told(record: dict[str, Any]) -> str:
    """What became of one arm, as sentences and a list that follow from its record."""
    openings = {
        "shown": "All that was expected came.",
        "not shown": "What was expected did not come with certainty: not all of it holds at p < 0.01.",
        "opposite": "The opposite of something that was expected came.",
        "diverged": "It diverged, so there is nothing to compare.",
        "no verdict": "There is no verdict.",
        "preliminary": "Too few seeds and steps for a verdict.",
    }
    lines = []
    for claim in record["claims"]:
        came = f"not judged, {claim['missing']}"
        if not claim["missing"]:
            came = f"measured {claim['measured']}; it holds in {claim['holds']} seeds"
        lines.append(f"- expected {claim['expected']}: {came}")
    notes = [f"{note[0].upper()}{note[1:]}." for note in record["notes"]]
    return "\n".join([" ".join([openings[record["verdict"]], *notes]), "", *lines])


def trained_values(sources: Sources) -> dict[str, Any]:
    """Of the model that is looked into."""
    trained = sources.trained
    model, corpus, last = trained.run.model, trained.corpus, trained.last
    language, settings = trained.language, trained.config.training
    step = max(line["step"] for line in trained.metrics)
    how = f"comes from {sources.folder.name}" if sources.folder else "was trained while this page was built"
    windows = answer_windows(trained)
    asked = windows.floor.facets >= 0
    effects = [effect(model, *answer) for answer in choose_answers(windows.inputs, windows.targets, asked, ANSWERS)]
    correlations = [e.rank_correlation for e in effects if e.rank_correlation == e.rank_correlation]
    return {
        "model": {
            "layers": len(model.blocks),
            "heads": trained.config.model.n_heads,
            "origin": how,
            "steps": step,
            "seconds": trained.seconds,
            "parameters": sum(p.numel() for p in model.parameters()),
            "vocabulary": len(corpus.vocabulary),
            "first_loss": next(line["loss"] for line in trained.metrics if "loss" in line),
            "loss": last["loss"],
            "excess": last["excess"],
            "floor": last["floor"],
            "facet": last["facets"],
            "batch": settings.batch_size,
        },
        "leak": f"{future_leak(model, windows.inputs[0]).largest:.1g}",
        "effects": {
            "count": len(effects),
            "agree": sum(e.agree for e in effects) / len(effects),
            "correlation": sum(correlations) / len(correlations),
        },
        "floor": language.entropy,
        "riverbank": {"sentences": len(language.sentences), "templates": len(language.facets)},
        "baseline": baselines(corpus),
    }


def answer_windows(trained: Trained):
    from minilm.evaluation import make_windows

    return make_windows(trained.corpus, context=trained.run.model.context, max_characters=8192)
