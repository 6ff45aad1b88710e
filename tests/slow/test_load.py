"""Does memory stay what it is while a run goes on?"""

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, environment

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="looks into /proc")]

LONG_RUN = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from conftest import tiny_config, trained_run
from minilm import training
usual = training.evaluate
def evaluate(*given):
    print("RSS", int(Path("/proc/self/statm").read_text().split()[1]))
    return usual(*given)
training.evaluate = evaluate
corpus = {"source": "file", "path": (sys.argv[2],)}
settings = {"steps": 2000, "evaluate_every": 100, "sample_every": 100}
trained_run(tiny_config(model={"width": 16, "n_layers": 1}, corpus=corpus, training=settings), Path(sys.argv[3]))
"""


def test_data_8_memory_is_flat_over_2000_steps(tiny_text, tmp_path):
    words = [sys.executable, "-c", LONG_RUN, str(ROOT / "tests"), str(tiny_text), str(tmp_path / "run")]
    pipes = {"capture_output": True, "encoding": "utf-8", "check": False}
    done = subprocess.run(words, env=environment(PYTHONPATH=str(ROOT)), **pipes)
    assert done.returncode == 0, done.stderr
    pages = [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("RSS")]
    assert len(pages) == 20
    print(pages)
    # From the fourth evaluation on everything has been used once; 1 % is what an allocator shifts about.
    assert max(pages[4:]) < 1.01 * pages[3]
