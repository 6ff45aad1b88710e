"""Do the random numbers depend on seed, stream and step, and on nothing else?"""

import hashlib

import torch

from minilm.streams import generator, stream_seed


def test_seed_is_the_hash_of_seed_stream_and_step():
    for seed, stream, step in ((0, "init/head.weight", 0), (7, "batches", 3), (2**63 - 1, "dropout", 10**9)):
        digest = hashlib.sha256(f"{seed}/{stream}/{step}".encode()).digest()
        assert stream_seed(seed, stream, step) == int.from_bytes(digest[:8], "little") // 2
    # The same on every platform and in every version: a saved run depends on it.
    assert stream_seed(7, "batches", 3) == 3152151459093554637


def test_seeds_fit_what_torch_takes_and_differ():
    seeds = [stream_seed(s, n, k) for s in (0, 1) for n in ("init", "batches") for k in range(50)]
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert len(set(seeds)) == len(seeds)


def test_generator_starts_anew_and_leaves_the_global_one_alone():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one, other = (torch.rand(3, generator=generator(0, "batches", 4)) for _ in range(2))
    assert torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), before)
