"""Where are the runs of a sweep made: on the cores of this machine, or by the workers of a cluster?

On a cluster the sweep hands out a ticket, a file beside the runs. A worker that sees it sees the
sweep's files; one that no longer does stops and saves, since the next sweep goes on with its runs.
"""

from __future__ import annotations

import importlib
import socket
import uuid
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from joblib import Parallel, delayed, parallel_config
from joblib.externals.loky import get_reusable_executor
from joblib.externals.loky.process_executor import BrokenProcessPool

from minilm.errors import UserError
from minilm.lab.jobs import TICKET, Job, run_here, run_there
from minilm.paths import replace_text

CONNECTING = 10  # seconds to wait for a scheduler, and for its first worker


class WorkerLost(Exception):  # noqa: N818 (a fact to go on from)
    """A worker is gone, and with it the last steps of its run."""


class Engine(Protocol):
    """What makes runs."""

    def results(self, jobs: list[Job]) -> Iterator[dict[str, Any]]:
        """The result of each job as it comes.

        Raises:
            WorkerLost: some are not made, and can be asked for anew.
            UserError: they cannot be made.
        """
        ...


@dataclass(frozen=True)
class Local:
    """Processes on this machine, one thread each."""

    workers: int

    def results(self, jobs: list[Job]) -> Iterator[dict[str, Any]]:
        try:
            with parallel_config("loky", n_jobs=min(self.workers, len(jobs)), inner_max_num_threads=1):
                yield from Parallel(return_as="generator_unordered", batch_size=1)(delayed(run_here)(j) for j in jobs)
        except BrokenProcessPool:
            raise WorkerLost from None
        except KeyboardInterrupt:
            # The workers got the same signal; left to themselves they would tell of what they leave behind.
            get_reusable_executor().shutdown(wait=True, kill_workers=False)
            raise


@dataclass(frozen=True)
class Dask:
    """The workers of a Dask cluster.

    Its own futures, not joblib's back end for Dask, which waits for ever for a run that its workers died of.
    """

    address: str
    out: Path

    def results(self, jobs: list[Job]) -> Iterator[dict[str, Any]]:
        distributed = library("distributed", "dask")
        gone = f"the Dask scheduler at {self.address} is gone; what was saved stands, and the same command goes on"
        with self.connect(distributed) as client, ticket(self.out) as held:
            futures = client.map(run_there, jobs, *([value] * len(jobs) for value in held), pure=False)
            try:
                for future in distributed.as_completed(futures):
                    yield future.result()
            except distributed.KilledWorker:
                raise WorkerLost from None
            except ImportError as error:
                raise not_installed(error) from None
            except (CancelledError, distributed.CancelledError, OSError):
                raise UserError(gone) from None

    def connect(self, distributed: Any) -> Any:
        """A client of a cluster that has workers."""
        try:
            client = distributed.Client(self.address, timeout=CONNECTING)
        except (OSError, ValueError) as error:
            raise UserError(
                f"--address {self.address}: no Dask scheduler answers there ({error}); "
                "`dask scheduler` starts one and tells its address, tcp://HOST:PORT"
            ) from None
        try:
            client.wait_for_workers(1, timeout=CONNECTING)
        except OSError:
            client.close()
            raise UserError(
                f"--address {self.address}: has no workers; start them with "
                f"`dask worker {self.address} --nworkers N --nthreads 1`"
            ) from None
        return client


@dataclass(frozen=True)
class Ray:
    """The workers of a Ray cluster, with Ray's own tasks: joblib's back end for it tells of nothing before the end."""

    address: str
    out: Path

    def results(self, jobs: list[Job]) -> Iterator[dict[str, Any]]:
        ray = library("ray", "ray")
        try:
            # Ray itself would ask for minutes.
            host, port = self.address.removeprefix("ray://").rsplit(":", 1)
            socket.create_connection((host, int(port)), timeout=CONNECTING).close()
            ray.init(address=self.address, log_to_driver=False, logging_level="error")
        except (OSError, ValueError, RuntimeError) as error:
            raise UserError(
                f"--address {self.address}: no Ray cluster answers there ({str(error).splitlines()[0]}); "
                "`ray start --head --port=6379` starts one at HOST:6379, and one that wants a token "
                "wants RAY_AUTH_MODE=token set here too"
            ) from None
        try:
            with ticket(self.out) as held:
                make = ray.remote(num_cpus=1, max_retries=3)(run_there)
                waiting = [make.remote(job, *held) for job in jobs]
                while waiting:
                    (done, *_), waiting = ray.wait(waiting)
                    yield ray.get(done)
        except ray.exceptions.RayTaskError as error:
            raise (not_installed(error.cause) if isinstance(error.cause, ImportError) else error.cause) from None
        except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError):
            raise WorkerLost from None
        finally:
            ray.shutdown()


@contextmanager
def ticket(out: Path) -> Iterator[tuple[str, Path, str]]:
    """What `run_there` has to know beside its job; taken back at the end, however it comes."""
    path, token = out.resolve() / TICKET, uuid.uuid4().hex
    try:
        out.mkdir(parents=True, exist_ok=True)
        replace_text(path, token)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from None
    try:
        yield str(Path.cwd()), path, token
    finally:
        path.unlink(missing_ok=True)


def library(name: str, extra: str) -> Any:
    """A library that only some need."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UserError(f"--engine {extra}: needs a library: pip install 'minilm[{extra}]'") from None


def not_installed(error: ImportError) -> UserError:
    return UserError(f"a worker of the cluster lacks a library ({error}): install the same minilm for the workers")
