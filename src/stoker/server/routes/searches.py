"""Searches and their trials: how one stands, and what it tried."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Response

from stoker.schema.record import JobTrial, SearchStatus, TrialList
from stoker.server.routes.replies import reply
from stoker.server.searches.status import SearchViews
from stoker.server.store.store import Store


@dataclass(frozen=True, slots=True)
class SearchRoutes:
    """What the routes of searches and trials need."""

    store: Store
    views: SearchViews

    def router(self) -> APIRouter:
        router = APIRouter(tags=["searches"])
        router.add_api_route("/jobs/{job}/trials", self.get_trials, methods=["GET"], response_model=TrialList)
        router.add_api_route("/jobs/{job}/search", self.get_search, methods=["GET"], response_model=SearchStatus)
        router.add_api_route("/trials/{trial}", self.get_trial, methods=["GET"], response_model=JobTrial)
        return router

    def get_trials(
        self,
        job: str,
        sort: Annotated[str, Query(description="number, newest or best")] = "number",
        limit: Annotated[int, Query(ge=1)] = 100,
        after: Annotated[int, Query(ge=0, description="by number: only those after this one")] = 0,
        trial: Annotated[int | None, Query(description="the trial of this number alone")] = None,
    ) -> Response:
        """Its trials, whole: hyperparameters, metrics, runs."""
        return reply(self.store.trials(job, sort=sort, limit=limit, after=after, only=trial))

    def get_search(self, job: str, best: Annotated[int, Query(ge=1)] = 10) -> Response:
        """How its search stands: the best trials, the curve of the best so far, what mattered."""
        return reply(self.views.status(job, best=best))

    def get_trial(self, trial: int) -> Response:
        """The trial of this id, whole, and the name of its job."""
        return reply(self.store.trial(trial))
