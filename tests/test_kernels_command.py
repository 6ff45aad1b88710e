"""Is the traffic of the three back ends that of the paper, and what does `python -m minilm kernels` measure?"""

import functools
import json

import pytest

from minilm.errors import UserError
from minilm.lab import kernels, traffic

# Reads and writes: against the formulas of Dao et al. 2022, where tiles divide the length.


def test_traffic_is_that_of_the_paper():
    n, d, b = 256, 16, 32
    t = traffic.traffic(n, d, b)
    assert t.explicit == 4 * n * n + 4 * n * d
    assert t.paper == 2 * n * d + (n // b) * (3 * n * d + 4 * n)
    assert t.tiled == n * d + (n // b) * 2 * n * d + n * (d + 1)
    assert t.fast == 4 * b * d + b * b


def test_traffic_counts_tiles_that_are_cut_off():
    assert traffic.traffic(10, 4, 64).tiled == 10 * 4 + 2 * 10 * 4 + 10 * 5


# The command.


def test_kernels_measures_and_draws(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(kernels, "measure_apart", functools.cache(kernels.measure))
    argv = ["--lengths", "64", "128", "--width", "8", "--tile", "16"]
    kernels.main([*argv, "--plot", str(tmp_path / "kernels.svg")])
    page = capsys.readouterr().out
    assert "The arithmetic stays quadratic" in page
    assert (tmp_path / "kernels.svg").stat().st_size > 1000
    kernels.main([*argv, "--json"])
    data = json.loads(capsys.readouterr().out)
    assert [(m["backend"], m["length"]) for m in data["measurements"][:3]] == [
        ("explicit", 64),
        ("tiled", 64),
        ("fused", 64),
    ]
    assert all(m["seconds"] > 0 and m["allocated"] > 0 for m in data["measurements"])
    assert set(data["exponents"]) == {"seconds", "allocated"}


def test_a_measurement_of_its_own_process_agrees():
    apart = kernels.measure_apart("tiled", 256, 16, 64, 1)
    here = kernels.measure("tiled", 256, 16, 64, 1)
    assert apart.allocated == here.allocated
    assert apart.grown < 50 * kernels.MIB


def test_a_measurement_that_fails_says_so():
    with pytest.raises(UserError, match="nonesuch at length 8: KeyError"):
        kernels.measure_apart("nonesuch", 8, 8, 64, 1)


def test_kernels_refuses_what_cannot_be_measured():
    with pytest.raises(UserError, match=r"(?s)--tile: 0.*two different lengths"):
        kernels.main(["--tile", "0", "--lengths", "64"])
