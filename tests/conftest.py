"""Every test has the shapes of public signatures checked, unless it is about bad input."""

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import torch
from jaxtyping import install_import_hook

from tests.unchecked import unchecked

if TYPE_CHECKING:
    from playwright.sync_api import Browser

install_import_hook("regard", "beartype.beartype")
torch.set_num_threads(1)  # the tensors are small and pytest-xdist has the other core


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing is left in the cache of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def as_users_run_it() -> Iterator[None]:
    """Without the type checks of the test suite, which would speak before our own errors can."""
    with unchecked():
        yield


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """A headless Chromium. It ends with the module: while it runs, no other event loop can."""
    play = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no chromium is installed (apt install chromium): pages are not opened")
    with play.sync_playwright() as running:
        made = running.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        yield made
        made.close()
