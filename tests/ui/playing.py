"""Playwright's names for all tests of the page; stand-ins where it is not installed, so that one fixture says so."""

from typing import Any

WAIT_MS = 60_000

try:
    from playwright.sync_api import Browser, BrowserContext, Locator, Page, Route, expect, sync_playwright

    expect.set_options(timeout=WAIT_MS)
except ImportError:  # the names stand in annotations alone
    Browser = BrowserContext = Locator = Page = Route = Any  # type: ignore[assignment, misc]
    expect = sync_playwright = None  # type: ignore[assignment]

__all__ = ["WAIT_MS", "Browser", "BrowserContext", "Locator", "Page", "Route", "expect", "sync_playwright"]
