"""Every test has the shapes of public signatures checked, unless it is about bad input."""

from collections.abc import Iterator

import pytest
import torch
from jaxtyping import config, install_import_hook

install_import_hook("regard", "beartype.beartype")
torch.set_num_threads(1)  # the tensors are small and pytest-xdist has the other core


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def as_users_run_it() -> Iterator[None]:
    """Without the type checks of the test suite, which would speak before our own errors can."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)
