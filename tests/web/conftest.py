"""A browser for the tests of this folder, and pages in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from shaderloom.runtime.bundle.files import open_files
from shaderloom.runtime.bundle.reader import Bundle
from shaderloom.serve.files import (
    bundle_list,
    bundle_resources,
    page_resources,
    runner_resources,
    text_resource,
)
from shaderloom.serve.site import Site

from ..support.bundles import small_bundle
from .chromium import Chromium, Page, PageError, find_chromium

#: Screenshots are kept here.
PICTURES = Path(__file__).resolve().parents[2] / "build" / "web"

EMPTY = text_resource("empty.html", "<!doctype html><title>empty</title><link rel=icon href='data:,'>")

OpenBundle = Callable[..., Page]


@pytest.fixture(scope="session")
def browser() -> Iterator[Chromium]:
    """A Chromium whose WebGPU works; skips where there is none."""
    program = find_chromium()
    if program is None:
        pytest.skip("chromium is not installed")
    with Chromium(program) as running, Site(EMPTY) as site:
        try:
            with running.open(site.url + "empty.html") as page:
                found = page.evaluate("navigator.gpu?.requestAdapter().then((adapter) => adapter !== null) ?? false")
        except PageError as error:
            pytest.skip(f"chromium does not start: {error}")
        if not found:
            pytest.skip("this chromium has no WebGPU adapter")
        yield running


@pytest.fixture(scope="session")
def static_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of the small model without bias for two shapes; not to be changed."""
    return small_bundle(tmp_path_factory.mktemp("static") / "b", 5, 7, bias=False)


@pytest.fixture
def blank(browser: Chromium) -> Iterator[Page]:
    """An empty page in a secure context, which may import the runner from ``/shaderloom.js``."""
    with Site({**EMPTY, **runner_resources()}) as site, browser.open(site.url + "empty.html") as page:
        yield page


@pytest.fixture
def open_bundle(browser: Chromium) -> Iterator[OpenBundle]:
    """``open_bundle(path, page="empty.html")``: a page that has the bundle at ``/bundle/``; ``""`` is that of serve."""
    with ExitStack() as stack:

        def open_page(path: Path, page: str = "empty.html") -> Page:
            listed = {}
            if not page:
                with Bundle(path) as bundle:
                    listed = bundle_list([(path.name, "bundle/", bundle.manifest)])
            files = open_files(path)
            stack.callback(files.close)
            resources = {
                **EMPTY,
                **page_resources(),
                **runner_resources(),
                **listed,
                **bundle_resources(files, "/bundle/"),
            }
            site = stack.enter_context(Site(resources))
            return stack.enter_context(browser.open(site.url + page))

        yield open_page
