"""One node of a run, from its package to its last word."""

import os
import select
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

from stoker.atomic import replace_file
from stoker.errors import StokerError
from stoker.host import processes
from stoker.host.home import Home
from stoker.run_dir import RunDir
from stoker.schema.launch import Launch, Replica
from stoker.storage.gcs_api import LazyGateway, is_needed
from stoker.supervisor import failure
from stoker.supervisor.inputs import Inputs
from stoker.supervisor.prepare import Preparation, Prepared
from stoker.supervisor.process import Ended, Replicas, StopRequest, find_ports
from stoker.supervisor.spool import Spool
from stoker.supervisor.variables import (
    VOLATILE,
    addressed,
    command,
    import_roots,
    process_environment,
    split_gpus,
    variables,
)

if TYPE_CHECKING:
    from stoker.supervisor.usage import Usage

_BUSY_POLL_S, _IDLE_POLL_S = 0.01, 0.1
_POLL_GROWTH = 1.05  # so that a line is seen within a twentieth of the time it was quiet before
_GIVE_UP_S = 2.0  # for a preparation whose tools were ended to end too
_QUICK_S = 0.1  # a preparation that takes longer is announced to the server before it is done
_SETTLE_S = 1.0  # one failure causes others: look who fails within this time, to find out who was first
_PS_GRACE_S = 5.0  # parameter servers have nothing to save
_THERE_S = 1.0  # how often the run directory is looked for
_USAGE_S = 5.0  # what a run uses is looked at for the first time after so long; a run that is over by then never is


@dataclass(frozen=True, slots=True)
class Exit:
    """How it ended: the fields of schema's Exited."""

    phase: str
    code: int | None = None
    signal: str | None = None
    replica: str | None = None
    stop: str | None = None
    message: str = ""
    traceback: str = ""


class LostError(StokerError):
    """How a run ended is not known: no event says so, and its trial is to have another."""


class RemovedError(StokerError):
    """The run directory is gone: nobody can read what is written there, nor find what was started for it."""


def check_is_there(spool: Spool) -> None:
    """RemovedError if the run directory that it is in is gone."""
    if spool.is_removed():
        raise RemovedError(
            f"{spool.path.parent} was removed, and nobody can read how its run goes on: it ends here."
        ) from None


class _Stopped(Exception):
    """Told to stop before user code was started."""


class Supervision:
    """Runs `run` once. Everything it learns goes into the spool; the last event there is how it ended."""

    def __init__(
        self,
        launch: Launch,
        run_dir: RunDir,
        *,
        home: Home,
        spool: Spool,
        node: int = 0,
        clustered: bool = True,
    ) -> None:
        self._launch, self._run_dir, self._home, self._spool, self._node = launch, run_dir, home, spool, node
        self._clustered = clustered
        self.stop = StopRequest()
        self.inputs = Inputs(run_dir, spool)
        if launch.artifacts is not None:
            from stoker.supervisor.artifacts import Artifacts  # noqa: PLC0415 -- few runs need it

            self.inputs.artifacts = Artifacts(launch, run_dir, home=home, say=self.inputs.say)
            self.inputs.is_hurried = lambda: self.stop.at_once
        self.say: Callable[[str], None] = lambda text: None  # hears what stoker itself has to say
        self.on_slow: Callable[[], None] = lambda: None  # called when user code runs, or when that takes a while
        self.error: StokerError | None = None  # what kept user code from starting
        self._poller = select.poll()
        self.stop.watch(self._poller)
        self._replicas = Replicas(run_dir, poller=self._poller)
        self.phase = "package"
        self._stopped_for: str | None = None
        self._failures: list[Ended] = []
        self._failed: Ended | None = None  # the first of them
        self._was_killed = False
        self._only_serves = False  # of several nodes, one whose ranks have ended
        self._is_lost = False
        self._gateway: LazyGateway | None = None
        self._usage: Usage | None = None
        self._look_at = self._there_at = 0.0
        self._is_signalled = self._has_ended = False

    def run(self) -> Exit:
        """Blocks until everything that was started has ended.

        LostError if it ended by no doing of its own, RemovedError if its directory was removed meanwhile.
        """
        for folder in (self._run_dir.logs, self._run_dir.hypertune):
            folder.mkdir(exist_ok=True)
        try:
            prepared = self._prepare()
            if prepared is not None:
                self._start(prepared)
                self._attend()
        except _Stopped:
            self._stop_for(self.stop.reason)
        except RemovedError:
            raise
        except StokerError as error:
            self.error = error
        finally:
            self._end_everything()
            if self._gateway is not None:
                self._gateway.close()
            if self._usage is not None:
                self._usage.close()
        if self._is_lost:
            raise LostError("The zygote that its processes were forked from has ended, and they with it.")
        result = self._exit()
        self._spool.end(**asdict(result))
        return result

    def close(self) -> None:
        self.stop.close()

    def hear_signal(self) -> None:
        """Asked to end by a signal; in the main thread. Once user code has ended, the second goes before copies."""
        if self._has_ended and self._is_signalled:
            self.stop.ask_at_once()
        self.stop.ask("preempt")
        self._is_signalled = True

    @property
    def is_told_to_leave(self) -> bool:
        """Whether a signal has come since user code ended: there is nothing to stop, and nothing to wait for."""
        return self._is_signalled

    def _prepare(self) -> Prepared | None:
        """None when it was told to stop meanwhile."""
        preparation = Preparation(
            self._launch, self._run_dir, home=self._home, spool=self._spool, say=lambda text: self.say(text)
        )
        preparation.start()
        preparation.join(_QUICK_S)
        try:
            while preparation.is_alive() and self._may_go_on():
                preparation.join(_BUSY_POLL_S)
        except RemovedError:
            _give_up(preparation)
            raise
        self.phase = preparation.phase
        if self.stop.reason is not None:
            self._stop_for(self.stop.reason)
            _give_up(preparation)
            return None
        return preparation.result()

    def _start(self, prepared: Prepared) -> None:
        self.phase = "start"
        self._spool.add("phase", phase="start")
        mine = self._launch.on_node(self._node)
        ports = {name: int(address.rpartition(":")[2]) for name, address in self._launch.addresses.items()}
        if not ports:
            ports = find_ports(
                [replica.name for replica in addressed(self._launch)], start_port=self._launch.start_port
            )
        gpus = split_gpus(mine, processes.visible_gpus(os.environ) or [])
        words = command(self._launch, prepared.python)
        inherited = {**os.environ, **prepared.variables}
        buckets = self._open_gateway({**inherited, **self._launch.variables})
        for replica in mine:
            own = variables(self._launch, replica, ports=ports, run_dir=self._run_dir, clustered=self._clustered)
            if replica.name in gpus:
                own["CUDA_VISIBLE_DEVICES"] = gpus[replica.name]
            environment = {**buckets, **process_environment(inherited, own, launch=self._launch, root=prepared.root)}
            if not (self._launch.warm and self._fork(replica, words, environment, prepared)):
                self._replicas.start(replica, command=words, environment=environment, cwd=prepared.root)
        self._replicas.write_processes()
        self.phase = "user code"
        self._spool.add("phase", phase="user code")
        self.inputs.open(mine, launch=self._launch)

    def _fork(self, replica: Replica, words: list[str], environment: dict[str, str], prepared: Prepared) -> bool:
        """Have a zygote start it; False if it has to be a fresh interpreter."""
        from stoker.supervisor.warm.launcher import Cold, Zygotes  # noqa: PLC0415 -- only trials of a search need it

        zygotes = Zygotes(self._home.zygotes, package=self._launch.package, go_on=self._may_go_on)
        try:
            child = zygotes.start(
                words,
                python=prepared.python,
                environment=environment,
                volatile=VOLATILE,
                roots=import_roots(self._launch, prepared.root),
                cwd=prepared.root,
                output=partial(self._replicas.output, replica),
            )
        except Cold as error:
            sys.stderr.write(f"{replica.name} is started cold: {error}\n")
            return False
        if child is None:
            raise _Stopped
        self._replicas.adopt(replica, child)
        return True

    def _may_go_on(self) -> bool:
        self.on_slow()
        self._check_is_there()
        return self.stop.reason is None

    def _open_gateway(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The variables that lead Google's storage clients to our buckets, unless it has credentials for Google's."""
        if not is_needed(self._home.root, environment):
            return {}
        self._gateway = LazyGateway(self._home.root)
        return self._gateway.variables()

    def _attend(self) -> None:
        started = time.monotonic()
        self._look_at = started + _USAGE_S
        limit_s = self._launch.max_running_s
        pause_s = 0.0
        while self._replicas.running:
            if self._poller.poll(pause_s * 1000):
                self.stop.heard()
            self._notice_ends()
            if limit_s is not None and time.monotonic() - started > limit_s:
                self.stop.ask("timeout")
            self._obey()
            self.on_slow()
            self._check_is_there()
            if time.monotonic() >= self._look_at:
                self._look_at = self._look(started)
            if self.inputs.read():
                pause_s = 0.0 if self.inputs.have_more else _BUSY_POLL_S
            else:
                pause_s = min(max(pause_s, _BUSY_POLL_S) * _POLL_GROWTH, _IDLE_POLL_S)

    def _check_is_there(self) -> None:
        if time.monotonic() >= self._there_at:
            self._there_at = time.monotonic() + _THERE_S
            check_is_there(self._spool)

    def _look(self, started: float) -> float:
        """Note what it uses of the machine; when to look again."""
        if self._usage is None:
            from stoker.supervisor.usage import Usage  # noqa: PLC0415 -- most trials of a search end before this

            mine = self._launch.on_node(self._node)
            gpus = processes.visible_gpus(os.environ) or []
            owners = split_gpus(mine, gpus) or ({mine[0].name: ",".join(gpus)} if gpus else {})
            self._usage = Usage(self._replicas.leaders, gpus=owners, since=started, period_s=_USAGE_S)
        return self._usage.look(self._spool)

    def _notice_ends(self) -> None:
        ended = self._replicas.reap()
        self._is_lost |= any(end.is_lost for end in ended)
        self._failures += [end for end in ended if end.returncode != 0 and not self._is_told_ps(end)]
        if self._failures and self._failed is None:
            is_settled = time.time() - self._failures[0].time > _SETTLE_S
            if is_settled or not self._replicas.running or self._stopped_for is not None:
                self._failed = failure.first(self._failures, self._run_dir)
                self._replicas.stop(self._running_names(), grace_s=self._launch.grace_s)
        elif (ended or self._only_serves) and all(replica.role == "ps" for replica in self._replicas.running):
            self._end_service()

    def _end_service(self) -> None:
        """Parameter servers serve for ever: they end when those they serve have ended, on this node and all others."""
        is_alone = len({replica.node for replica in self._launch.replicas}) == 1
        if is_alone or self.stop.reason is not None:
            if not self._replicas.is_winding_down:
                self._replicas.stop(self._running_names(), grace_s=min(_PS_GRACE_S, self._launch.grace_s))
        elif self._replicas.running and not self._only_serves:
            self._only_serves = True
            self._run_dir.serving.touch()  # the engine sees it, and tells us when all nodes have come so far

    def _obey(self) -> None:
        # An order that comes when the run has failed, or is at its end, does not change how it ended.
        is_over = bool(self._failures) or self._replicas.is_winding_down
        if self.stop.reason is not None and self._stopped_for is None and not is_over:
            reason = self._stop_for(self.stop.reason)
            replace_file(self._run_dir.stop, f"{reason}\n")
            self._replicas.stop(self._running_names(), grace_s=self._launch.grace_s)
            self._say(f"Told to stop ({reason}): asked user code to end within {self._launch.grace_s:g} s.")
        if self.stop.reason is not None and self._replicas.running:
            self._is_signalled = False  # it was heard in time: user code is on its way out
        if self._replicas.kill_overdue(now=self.stop.at_once):
            self._was_killed = True

    def _stop_for(self, reason: str | None) -> str | None:
        self._stopped_for, self._is_signalled = reason, False
        return reason

    def _end_everything(self) -> None:
        if not self._replicas.end_leftovers():
            self._say("Some processes of this run cannot be ended: they wait in the kernel.")
        while self._replicas.running:  # on the way out of an error: they are dead, but not yet waited for
            self._is_lost |= any(end.is_lost for end in self._replicas.reap())
            time.sleep(_BUSY_POLL_S)
        self._has_ended = True
        self.inputs.finish()

    def _exit(self) -> Exit:
        if self.error is not None:
            return Exit(phase=self.phase, message=" ".join(str(self.error).split()))
        ended, stop = self._failed, self._stopped_for
        if ended is None and stop is None and self._was_interrupted():
            message = "user code got SIGTERM from outside stoker (a shutdown, or someone's kill) and stopped early"
            return Exit(phase=self.phase, code=0, stop="preempt", message=message)
        if ended is None:
            code = 0 if self.phase == "user code" else None
            return Exit(phase=self.phase, code=code, stop=stop, message=self._why_stopped())
        stderr = failure.end_of(self._run_dir.output(ended.replica.name, "stderr"))
        traceback = "" if ended.signal else failure.last_traceback(stderr)
        message = failure.message(ended, stderr=stderr, traceback=traceback)
        if stop is not None:
            message = f"{self._why_stopped()}: {message}"
        return Exit(
            phase=self.phase,
            code=ended.exit_code,
            signal=ended.signal,
            replica=ended.replica.name,
            stop=stop,
            message=message,
            traceback=traceback,
        )

    def _was_interrupted(self) -> bool:
        """Whether all that ended well did so because of a signal that this supervisor did not send."""
        return self.phase == "user code" and self._run_dir.interrupted.exists()

    def _why_stopped(self) -> str:
        if self._stopped_for is None:
            return ""
        why = f"told to stop ({self._stopped_for})"
        if self._stopped_for == "timeout":
            why = f"ran longer than its limit of {self._launch.max_running_s:g} s"
        if self._was_killed:
            why += f", did not end within {self._launch.grace_s:g} s and was killed"
        return why

    def _running_names(self) -> list[str]:
        return [replica.name for replica in self._replicas.running]

    def _is_told_ps(self, ended: Ended) -> bool:
        return ended.replica.role == "ps" and ended.was_told

    def _say(self, text: str) -> None:
        self.inputs.say(text)
        self.say(text)


def _give_up(preparation: Preparation) -> None:
    """End its tools, and wait for it to remove their temporary files: what fails without one may begin with another."""
    give_up = time.monotonic() + _GIVE_UP_S
    while True:
        processes.end_all(lambda: processes.descendants(os.getpid()), grace_s=1.0)
        preparation.join(_QUICK_S)
        if not preparation.is_alive() or preparation.phase != "environment" or time.monotonic() > give_up:
            return
