"""A run as data: all that a supervisor needs to start it. `--dry-run` prints it, tests compare it."""

from typing import Any

from stoker.origin import Origin
from stoker.schema.job import EnvironmentSpec, Role, Share
from stoker.schema.model import Model


class Replica(Share):
    """One process of a run. `rank` numbers the chief and the workers; parameter servers and evaluators have none."""

    role: Role
    index: int
    rank: int | None
    node: int = 0
    gpu_resource: str | None = None  # the cluster's own name of the kind of GPU it needs; any kind, if not given

    @property
    def name(self) -> str:
        return f"{self.role}-{self.index}"


class Launch(Model):
    """What to run, with which Python, as which processes."""

    run: str  # "taxi_1.1.1": job, trial number, attempt
    job: str
    trial: int  # from 1, within the job
    trial_id: int  # unique on the server; 0 without one
    attempt: int  # from 1
    package: str | None = None  # hash; fetched and unpacked into the run directory
    source: str | None = None  # or a directory to run in place (`stoker local train`)
    import_roots: tuple[str, ...] = (".",)
    environment: EnvironmentSpec = EnvironmentSpec()
    module: str | None = None
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] = ()
    hparams: dict[str, Any] = {}
    data: dict[str, Any] = {}
    origin: Origin | None = None
    job_dir: str | None = None
    replicas: tuple[Replica, ...]
    addresses: dict[str, str] = {}  # "host:port" of the replicas, when they are on several nodes
    start_port: int | None = None  # of the replicas' addresses; free ports when not given
    chief_name: str = "chief"
    in_search: bool = False  # CLOUD_ML_TRIAL_ID and TF_CONFIG's task.trial are for searches alone
    metric: str | None = None  # what the search looks at: CLOUD_ML_HP_METRIC_TAG
    warm: bool = False  # its replicas may be forked from a Python that has imported what they import
    latest_checkpoint: str | None = None  # a path; or a storage URL, which the supervisor fetches
    artifacts: str | None = None  # a storage URL under which its checkpoints and models are kept beside its own disk
    seed: int = 0
    max_running_s: float | None = None
    grace_s: float = 30.0

    @property
    def num_nodes(self) -> int:
        return 1 + max(replica.node for replica in self.replicas)

    @property
    def world_size(self) -> int:
        return sum(replica.rank is not None for replica in self.replicas)
