"""Images in folders, one a class, read when they are needed."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from treadle.data.sources import Source
from treadle.errors import at, user_source
from treadle.optional import need

_SUFFIXES = [
    ".png",
    ".jpg",
    ".jpeg",
    ".bmp",
    ".gif",
    ".webp",
    ".tif",
    ".tiff",
    ".ppm",
    ".pgm",
    ".pbm",
    ".jfif",
]

_ENDS = {"PNG": b"IEND\xaeB`\x82", "JPEG": b"\xff\xd9", "GIF": b";"}
"""What files of a format end with."""
_SHOWN = 5
_DAMAGED = """\
{found} can't be read{why}{at}
Replace {them}, or take {them} out of the folder."""


@dataclass(frozen=True)
class ImageFolder:
    """The images of a folder.

    source: of bytes (n, height, width, 3), or (n, height, width) if all are grey.
    labels: their classes, (n,) int32. classes: their names. Both are None where images
      lie in the folder itself. size: height and width.
    note: what is not obvious about them, or "".
    """

    source: Source
    labels: np.ndarray | None
    classes: tuple[str, ...] | None
    size: tuple[int, int]
    grey: bool
    note: str

    @property
    def shape(self) -> str:
        """For people."""
        return "x".join(map(str, (*self.size, *([] if self.grey else [3]))))


def image_folder(
    path: Path,
    size: tuple[int, int] | None = None,
    classes: tuple[str, ...] | None = None,
    grey: bool | None = None,
) -> ImageFolder:
    """The images in the folders of a folder, or in a folder that has no such.

    size, classes, grey: as those of other images are; None: as is found.

    Raises:
      ValueError: if there are none, or some can't be read, or are of another class.
    """
    files, labels, classes = _files(path, classes)
    need("reading images", "PIL")
    sizes, modes = _headers(files)
    note = ""
    if size is None:
        size = sizes.most_common(1)[0][0]
        if len(sizes) > 1:
            low, high = min(sizes), max(sizes)
            note = f"sizes from {low[0]}x{low[1]} to {high[0]}x{high[1]} are made one"
    if grey is None:
        grey = modes <= {"1", "L", "LA", "I", "I;16"}
    height, width = size

    def one(file: Path) -> np.ndarray:
        try:
            with _open(file) as image:
                if image.mode.startswith("I"):  # of 16 bits, which `convert` cuts off
                    image = image.point(lambda value: value * (1 / 256))
                found = image.convert("L" if grey else "RGB")
        except Exception as error:  # Pillow has many kinds for what is damaged.
            raise _damaged({file: error}) from None
        if found.size != (width, height):
            found = found.resize((width, height))
        return np.asarray(found)

    def fetch(numbers: np.ndarray) -> Any:
        return np.stack([one(files[n]) for n in numbers])

    return ImageFolder(Source(fetch, len(files)), labels, classes, size, grey, note)


def _files(
    path: Path, classes: tuple[str, ...] | None
) -> tuple[list[Path], np.ndarray | None, tuple[str, ...] | None]:
    folders = [p for p in sorted(path.iterdir()) if p.is_dir()]
    found = {
        folder.name: [f for f in sorted(folder.rglob("*")) if is_image(f)]
        for folder in folders
    }
    found = {name: files for name, files in found.items() if files}
    here = [f for f in sorted(path.iterdir()) if is_image(f)]
    if here and not found and classes is None:
        return here, None, None
    if not found:
        raise ValueError(
            f"no folder in {path} holds images ({' '.join(_SUFFIXES)})"
            f"{at(user_source())}\nImages lie in a folder for each class, by its name."
        )
    if classes is None:
        classes = tuple(found)
    for name in found:
        if name not in classes:
            raise ValueError(
                f"{path / name} is a class that the training images don't have: "
                f"{', '.join(classes)}{at(user_source())}"
            )
    files = [f for group in found.values() for f in group]
    labels = [classes.index(name) for name, group in found.items() for _ in group]
    return files, np.array(labels, np.int32), classes


def is_image(path: Path) -> bool:
    """Whether a file is called as an image is."""
    return path.suffix.lower() in _SUFFIXES and not path.name.startswith(".")


def _headers(files: list[Path]) -> tuple[Counter[tuple[int, int]], set[str]]:
    """The sizes and modes of images: of most no more is read than how they begin and
    end.

    Raises:
      ValueError: if some can't be read.
    """
    sizes: Counter[tuple[int, int]] = Counter()
    modes = set()
    damaged: dict[Path, Exception] = {}
    for file in files:
        try:
            with _open(file) as image:
                sizes[image.height, image.width] += 1
                modes.add(image.mode)
                if not _ends(file, image.format):
                    image.load()
        except Exception as error:
            damaged[file] = error
    if damaged:
        raise _damaged(damaged)
    return sizes, modes


def _ends(path: Path, format: str) -> bool:
    """Whether a file ends as those of its format: what was cut off does not. Others may
    be whole, too."""
    with open(path, "rb") as file:
        if format == "WEBP":
            length = int.from_bytes(file.read(8)[4:], "little")
            return file.seek(0, os.SEEK_END) >= 8 + length
        end = _ENDS.get(format)
        if end is None:
            return False
        file.seek(-len(end), os.SEEK_END)
        return file.read() == end


def _open(path: Path) -> Any:
    from PIL import Image

    return Image.open(path)


def _damaged(found: dict[Path, Exception]) -> ValueError:
    """The error for images that can't be read, and why."""
    if len(found) == 1:
        ((path, error),) = found.items()
        what, why, them = str(path), f": {_reason(error)}", "it"
    else:
        lines = [f"{path}: {_reason(error)}" for path, error in found.items()]
        rest = [f"and {len(lines) - _SHOWN} more"] * (len(lines) > _SHOWN)
        what, them = f"{len(lines)} images", "them"
        why = "\n".join(["", *lines[:_SHOWN], *rest])
    return ValueError(
        _DAMAGED.format(found=what, why=why, them=them, at=at(user_source()))
    )


def _reason(error: Exception) -> str:
    if type(error).__name__ == "UnidentifiedImageError":
        return "it is no image of a known kind"  # Pillow says no more than the path.
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
