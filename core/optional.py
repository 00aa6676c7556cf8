"""Packages that some functions need, and the library alone does not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec

from treadle.errors import MissingPackageError, at, user_source

_EXTRAS = {
    "rich": "recipes",
    "matplotlib": "recipes",
    "sklearn": "recipes",
    "PIL": "recipes",
    "orbax": "orbax",
    "scipy": "test",
    "tokenizers": "hf",
    "tensorboardX": "logs",
    "dp_accounting": "privacy",
}
"""The extra of pyproject.toml that installs a package."""
_INSTALLED_AS = {
    "sklearn": "scikit-learn",
    "orbax": "orbax-checkpoint",
    "PIL": "pillow",
    "dp_accounting": "dp-accounting",
}


@contextmanager
def needed_for(purpose: str) -> Iterator[None]:
    """Around the import of packages that only some users have.

    Raises:
      MissingPackageError: naming the package and what it is needed for.

    >>> with needed_for("a table"):
    ...     from rich.table import Table
    """
    try:
        yield
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in _EXTRAS:
            raise
        raise _missing(purpose, [name]) from None


def need(purpose: str, *names: str) -> None:
    """
    Raises:
      MissingPackageError: naming all packages among `names` that are not there.
    """
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise _missing(purpose, missing)


def _missing(purpose: str, names: Sequence[str]) -> MissingPackageError:
    packages = [_INSTALLED_AS.get(name, name) for name in names]
    extras = ",".join(dict.fromkeys(_EXTRAS[name] for name in names))
    verb, them = ("is", "it") if len(names) == 1 else ("are", "them")
    return MissingPackageError(
        f"{purpose} needs {' and '.join(packages)}, which {verb} not installed"
        f"{at(user_source())}\n"
        f"Install {them}: `pip install {' '.join(packages)}`, or in a checkout of "
        f"Treadle `pip install '.[{extras}]'`."
    )
