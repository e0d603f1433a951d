"""Waking across threads."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

from stoker.server.live.wakeups import JOBS, Wakeups, job_topic, run_topic


def on_loop(story: Callable[[Wakeups], Awaitable[None]]) -> None:
    async def told() -> None:
        wakeups = Wakeups()
        wakeups.bind(asyncio.get_running_loop())
        async with asyncio.timeout(60):
            await story(wakeups)

    asyncio.run(told())


def from_thread(act: Callable[[], None]) -> None:
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()


def test_listener_is_woken_from_another_thread() -> None:
    async def story(wakeups: Wakeups) -> None:
        with wakeups.listen(job_topic("taxi")) as listener:
            from_thread(lambda: wakeups.job_changed("taxi"))
            assert await listener.wait(60)
            assert listener.take() == {"taxi"}
            assert not await listener.wait(0)

    on_loop(story)


def test_listener_hears_its_own_topic_alone() -> None:
    async def story(wakeups: Wakeups) -> None:
        with wakeups.listen(run_topic("taxi.1.1")) as run, wakeups.listen(job_topic("bus")) as job:
            wakeups.job_changed("taxi")
            wakeups.run_ordered("bus.1.1")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not await run.wait(0)
            assert not await job.wait(0)

    on_loop(story)


def test_news_of_many_jobs_are_collected() -> None:
    async def story(wakeups: Wakeups) -> None:
        with wakeups.listen(JOBS) as listener:
            for name in ("a", "b", "a"):
                from_thread(lambda name=name: wakeups.job_changed(name))  # type: ignore[misc]
            await listener.wait(60)
            assert listener.take() == {"a", "b"}

    on_loop(story)


def test_all_listeners_stop_waiting_when_the_server_goes() -> None:
    async def story(wakeups: Wakeups) -> None:
        with wakeups.listen(JOBS) as listener:
            from_thread(wakeups.close)
            assert await listener.wait(60)
            assert listener.closed
            listener.take()
            assert await listener.wait(60), "it stays closed"
        with wakeups.listen(JOBS) as late:
            assert late.closed

    on_loop(story)


def test_waking_before_and_after_the_loop_is_harmless() -> None:
    wakeups = Wakeups()
    wakeups.job_changed("taxi")

    async def bind() -> None:
        wakeups.bind(asyncio.get_running_loop())
        wakeups.listen(JOBS).__enter__()

    asyncio.run(bind())
    wakeups.job_changed("taxi")
    wakeups.close()
