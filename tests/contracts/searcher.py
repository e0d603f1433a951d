"""The Searcher port as tests: subclass, give `spec`, and every clause of stoker.search.base.Searcher is tried."""

import math
from collections.abc import Sequence

import pytest

from stoker.schema.search import Grid, Pbt, SearchSpec
from stoker.search.base import Asked, Ended, Outcome, Record, Reported, dump_record
from stoker.search.results import best_trials
from stoker.search.searcher import build_searcher
from tests.search.simulation import Simulation, World

ROUGH = World(failing=0.1, invalid=0.1, diverging=0.1)


class SearcherContract:
    """Searches of a dozen or more trials; `prefixes` may be thinned by those whose samplers are slow."""

    prefixes: int = 15  # places at which the search is taken up again

    @pytest.fixture
    def spec(self) -> SearchSpec:
        raise NotImplementedError

    def test_search_goes_on_as_before_when_rebuilt_after_any_record(self, spec: SearchSpec) -> None:
        whole = Simulation(spec, ROUGH).run()

        for place in range(0, len(whole), max(len(whole) // self.prefixes, 1)):
            again = Simulation(spec, ROUGH, records=whole[:place]).run()
            assert _text(again) == _text(whole), f"taken up after {place} of {len(whole)} records"

    def test_every_decision_follows_from_the_records_before_it(self, spec: SearchSpec) -> None:
        whole = Simulation(spec, ROUGH).run()
        searcher = build_searcher(spec)

        for record in whole:
            if isinstance(record, Asked):
                assert searcher.ask() == record.suggestion
            elif isinstance(record, Reported):
                found = searcher.report(record.trial, step=record.step, values=record.values)
                assert found == record.stop
            else:
                searcher.ended(record.trial, record.outcome, reported=record.reported)
        assert searcher.finished

    def test_same_seed_gives_the_same_trials(self, spec: SearchSpec) -> None:
        assert _text(Simulation(spec, ROUGH).run()) == _text(Simulation(spec, ROUGH).run())

    def test_other_seed_gives_other_trials_unless_nothing_is_left_to_chance(self, spec: SearchSpec) -> None:
        def points(seed: int) -> list[str]:
            records = Simulation(spec.with_(seed=seed), World()).run()
            return [repr(record.suggestion.hparams) for record in records if isinstance(record, Asked)]

        assert (points(1) == points(2)) is isinstance(spec.sampler, Grid)

    def test_trials_are_numbered_from_one_and_have_seeds_of_their_own(self, spec: SearchSpec) -> None:
        asked = [r.suggestion for r in Simulation(spec, World()).run() if isinstance(r, Asked)]

        assert [suggestion.trial for suggestion in asked] == list(range(1, len(asked) + 1))
        assert len({suggestion.seed for suggestion in asked}) == len(asked)
        assert all(0 <= suggestion.seed < 2**31 for suggestion in asked)

    def test_limits_hold_at_every_moment(self, spec: SearchSpec) -> None:
        simulation = Simulation(spec, ROUGH)
        records = simulation.run()

        made = sum(isinstance(record, Asked) for record in records)
        invalid = sum(isinstance(r, Ended) and r.outcome is Outcome.INVALID_HP for r in records)
        assert simulation.most_live <= spec.max_concurrent_trials
        assert 0 < made - invalid <= simulation.searcher.max_trials
        assert made == sum(isinstance(record, Ended) for record in records)

    def test_ask_without_an_answer_changes_nothing(self, spec: SearchSpec) -> None:
        whole = Simulation(spec, ROUGH).run()
        simulation = Simulation(spec, ROUGH)

        while simulation.step():
            if len(simulation.searcher.live) >= spec.max_concurrent_trials:
                assert simulation.searcher.ask() is None
                assert simulation.searcher.ask() is None
        assert _text(simulation.records) == _text(whole)

    def test_trial_is_told_to_stop_once_and_stays_live_until_it_ended(self, spec: SearchSpec) -> None:
        simulation = Simulation(spec, World())
        told: set[int] = set()
        while simulation.step():
            record = simulation.records[-1]
            if isinstance(record, Reported) and record.stop is not None:
                assert record.trial not in told
                told.add(record.trial)
                assert record.trial in simulation.searcher.live
                assert simulation.searcher.stopping[record.trial] == record.stop
                late = simulation.searcher.report(record.trial, step=record.step + 1, values={"loss": 0.5})
                assert late is None

        assert not simulation.searcher.stopping

    def test_value_that_is_no_number_never_wins_and_never_ends_the_search(self, spec: SearchSpec) -> None:
        some = Simulation(spec, World(diverging=0.3))
        some.run()
        all_ = Simulation(spec, World(metric=lambda suggestion, step: math.nan))
        all_.run()

        assert some.searcher.finished
        assert some.searcher.failure() is None
        assert all_.searcher.finished
        assert all_.searcher.failure() is None
        assert best_trials(spec, all_.searcher.results()) == []
        assert all(math.isfinite(r.values[0] or 0.0) for r in best_trials(spec, some.searcher.results(), count=99))

    def test_invalid_hyperparameters_are_replaced(self, spec: SearchSpec) -> None:
        simulation = Simulation(spec, World(invalid=0.3))
        outcomes = [r.outcome for r in simulation.run() if isinstance(r, Ended)]

        assert simulation.searcher.finished
        valid = sum(outcome is not Outcome.INVALID_HP for outcome in outcomes)
        calm = sum(isinstance(r, Asked) for r in Simulation(spec, World()).run())
        if isinstance(spec.sampler, Grid):
            assert len(outcomes) == calm  # a point of a grid has no other in its place
        elif isinstance(spec.sampler, Pbt):
            assert valid >= spec.sampler.population  # how many are replaced later depends on how they do
        else:
            assert valid == calm

    def test_progress_rises_to_one(self, spec: SearchSpec) -> None:
        simulation = Simulation(spec, World())
        seen = [simulation.searcher.progress()]
        while simulation.step():
            seen.append(simulation.searcher.progress())

        assert seen == sorted(seen)
        assert all(0 <= value <= 1 for value in seen)
        assert seen[-1] == 1

    def test_search_ends_in_words_when_every_trial_fails(self, spec: SearchSpec) -> None:
        simulation = Simulation(spec, World(failing=1.0, well_until=0))
        simulation.run()

        assert simulation.searcher.finished
        assert "failed. The last to fail was trial" in (simulation.searcher.failure() or "")

    def test_what_is_not_live_cannot_be_heard(self, spec: SearchSpec) -> None:
        searcher = build_searcher(spec)

        with pytest.raises(LookupError):
            searcher.report(1, step=1, values={"loss": 1.0})
        with pytest.raises(LookupError):
            searcher.ended(1, Outcome.COMPLETED)


def _text(records: Sequence[Record]) -> str:
    return "\n".join(dump_record(record) for record in records)
