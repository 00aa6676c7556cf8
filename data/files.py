"""Labelled examples from files: images in folders by class, NPZ, IDX, CSV."""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from treadle import rng, tree
from treadle.data.folders import image_folder, is_image
from treadle.data.order import Order
from treadle.data.sources import Source, source_of
from treadle.data.tables import Column, table
from treadle.errors import at, user_source

_KINDS = """\
{path} is none of the files that can be read{at}
They are: a folder with a folder of images for each class (or `train` and `test` \
folders of such), an .npz file, IDX files (as MNIST's), a .csv file with a header."""
_NPZ = """\
{path} has arrays {found}, of which none is called {wanted}{at}
Save them so: `np.savez(path, x=..., y=...)`, or x_train, y_train, x_test and y_test."""
_INPUTS = ("x", "images", "inputs", "data", "features")
_LABELS = ("y", "labels", "label", "targets", "target")
_MOST, _SPARSE = 1000, 10
"""Labels number classes up to the first, and beyond if one in so many is there."""
_TEST = ("test", "val", "valid", "validation", "t10k")


@dataclass(frozen=True)
class Labelled:
    """Examples and what they are.

    inputs: images (n, height, width) or (n, height, width, channels) of bytes or
      floats, other arrays, the columns of a table, or a `Source` of images.
    labels: numbers of classes (n,) int32, or the values to be predicted (n,) float32;
      None where there are none.
    """

    inputs: Any
    labels: np.ndarray | None

    def __len__(self) -> int:
        return source_of(self.inputs).count

    @property
    def source(self) -> Source:
        """For a `Loader`: its batches are pairs of inputs and labels."""
        inputs, labels = source_of(self.inputs), self.labels

        def fetch(numbers: np.ndarray) -> tuple[Any, np.ndarray | None]:
            return inputs.fetch(numbers), None if labels is None else labels[numbers]

        return Source(fetch, inputs.count, inputs.slow)


@dataclass(frozen=True)
class DataSet:
    """What was read: examples to train with, and to test with if some were set apart.

    classes: their names, by number; None if the labels are not classes.
    columns: of a table, what they are.
    about: in a sentence or two, for people.
    """

    train: Labelled
    test: Labelled | None
    classes: tuple[str, ...] | None
    about: str
    columns: tuple[Column, ...] = ()

    def split(self, share: float = 0.2, *, seed: int = 0) -> DataSet:
        """The data set with a share of the training examples set apart for testing, if
        none are yet: always the same for a seed.

        Raises:
          TypeError: if the share is no number.
          ValueError: if either part would be empty.
        """
        if self.test is not None:
            return self
        if isinstance(share, bool) or not isinstance(share, (int, float, np.number)):
            raise TypeError(
                f"share is a number between 0 and 1, got {share!r}{at(user_source())}"
            )
        count = len(self.train)
        held = round(share * count)
        if not 0 < held < count:
            raise ValueError(
                f"a share of {share} of {count} examples leaves nothing to "
                f"{'train' if held else 'test'} with{at(user_source())}"
            )
        order = Order(rng.key(seed), count)[0:count]
        return replace(
            self,
            train=_taken(self.train, np.sort(order[held:])),
            test=_taken(self.train, np.sort(order[:held])),
            about=f"{self.about}; {held} of them (by seed {seed}) are for testing",
        )


def _taken(examples: Labelled, numbers: np.ndarray) -> Labelled:
    source = examples.inputs
    if isinstance(source, Source):
        fetch: Callable[[np.ndarray], Any] = source.fetch
        inputs: Any = Source(lambda n: fetch(numbers[n]), len(numbers))
    else:
        inputs = tree.map(lambda x: x[numbers], source)
    labels = None if examples.labels is None else examples.labels[numbers]
    return Labelled(inputs, labels)


def read(
    path: str | Path,
    *,
    target: str | None = None,
    image_size: tuple[int, int] | None = None,
) -> DataSet:
    """Labelled examples from files, by what is found there.

    - A folder with a folder of images for each class; or with folders `train` and
      `test` (`val`) of such. Images are read when they are needed. Grey ones stay grey;
      of different sizes, all get the size that most have. Of a folder that holds images
      itself, and no folders of such, they have no labels.
    - A file .npz with `x` (or `images`) and `y` (or `labels`); or `x_train`, `y_train`,
      `x_test`, `y_test`.
    - IDX files, as MNIST's, .gz or not: a folder of them, or the one with the images.
    - A file .csv with a header. Columns of numbers and of categories are told apart.

    Args:
      path: the folder or file.
      target: of a table, the column to be predicted; by default the last one.
      image_size: height and width that the images of a folder get.

    Raises:
      FileNotFoundError: if there is nothing at `path`.
      ValueError: if it is something else, or damaged; it says what is there.
      TypeError: if `path` is no path, or `image_size` no pair.

    >>> import numpy as np, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/a.npz", x=np.zeros((6, 8, 8)), y=[0, 1, 2, 0, 1, 2])
    ...     found = read(f"{folder}/a.npz")
    >>> found.about
    '6 images of 8x8 in 3 classes'
    >>> found.split(0.5).test.labels
    array([0, 1, 2], dtype=int32)
    """
    if not isinstance(path, str | Path):
        raise TypeError(
            f"path is that of a folder or a file, got {path!r:.80}{at(user_source())}"
        )
    path = Path(path)
    if image_size is not None:
        _check_size(image_size)
    if not path.exists():
        raise FileNotFoundError(f"there is nothing at {path}{at(user_source())}")
    if path.suffix == ".npz":
        return _npz(path)
    if path.suffix in (".csv", ".tsv"):
        return _csv(path, target)
    idx = _idx_pairs(path)
    if idx:
        return _from_parts({name: _idx(*pair) for name, pair in idx.items()})
    if path.is_dir():
        folders = {p.name: p for p in sorted(path.iterdir()) if p.is_dir()}
        if folders or any(is_image(p) for p in path.iterdir()):
            test = next((folders[n] for n in _TEST if n in folders), None)
            own = "train" in folders
            return _images(
                folders["train"] if own else path, test if own else None, image_size
            )
    raise ValueError(_KINDS.format(path=path, at=at(user_source())))


def _check_size(size: Any) -> None:
    whole = isinstance(size, (tuple, list)) and [type(n) for n in size] == [int, int]
    if not whole or min(size) < 1:
        error = ValueError if whole else TypeError
        raise error(
            f"image_size is (height, width), two ints of 1 or more, got {size!r}"
            f"{at(user_source())}"
        )


def _images(
    folder: Path, test_folder: Path | None, size: tuple[int, int] | None
) -> DataSet:
    train = image_folder(folder, size)
    test = None
    if test_folder is not None:
        other = image_folder(test_folder, train.size, train.classes, train.grey)
        test = Labelled(other.source, other.labels)
    about = f"{train.source.count} images of {train.shape}"
    if train.classes is not None:
        names = ", ".join(train.classes[:12]) + ", …" * (len(train.classes) > 12)
        about += f" in {len(train.classes)} classes ({names})"
    if train.note:
        about += f"; {train.note}"
    if test is not None:
        about += f"; {len(test)} others for testing"
    return DataSet(Labelled(train.source, train.labels), test, train.classes, about)


def _csv(path: Path, target: str | None) -> DataSet:
    found = table(path, target)
    return DataSet(
        Labelled(found.inputs, found.labels),
        None,
        found.classes,
        found.about,
        found.columns,
    )


def _npz(path: Path) -> DataSet:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        # What NumPy says of Python's objects is how to load them unsafely.
        said = "it has no arrays of numbers" if "pickle" in str(error) else error
        raise ValueError(
            f"{path} can't be read: {said}{at(user_source())}\n"
            "Save it so: `np.savez(path, x=..., y=...)`."
        ) from None
    parts = {}
    for part in ("train", "test"):
        suffixes = (f"_{part}", "") if part == "train" else ("_test", "_val")
        x = _named(arrays, _INPUTS, suffixes)
        y = _named(arrays, _LABELS, suffixes)
        if x is not None:
            parts[part] = (arrays[x], None if y is None else arrays[y], f"{path}: {x}")
    if "train" not in parts:
        found = ", ".join(f"{n} {a.dtype}{list(a.shape)}" for n, a in arrays.items())
        raise ValueError(
            _NPZ.format(
                path=path,
                found=found or "(none)",
                wanted=" or ".join(_INPUTS),
                at=at(user_source()),
            )
        )
    return _from_parts(parts)


def _named(arrays: Mapping[str, Any], names: Any, suffixes: Any) -> str | None:
    wanted = [f"{name}{suffix}" for suffix in suffixes for name in names]
    return next((name for name in wanted if name in arrays), None)


Part = tuple[np.ndarray, np.ndarray | None, str]
"""Inputs, labels, and where they are from."""


def _from_parts(parts: Mapping[str, Part]) -> DataSet:
    for x, y, where in parts.values():
        _check_part(x, y, where, parts["train"][0].shape[1:])
    labels = [y for _, y, _ in parts.values() if y is not None]
    classes: tuple[str, ...] | None = None
    if labels and not np.issubdtype(labels[0].dtype, np.inexact):
        values = np.unique(np.concatenate([y.ravel() for y in labels]))
        classes = _class_names(values)
    made = {}
    for name, (x, y, _) in parts.items():
        made[name] = Labelled(x, None if y is None else _labels(y, classes))
    train = made["train"]
    about = f"{len(train)} {_shape_text(parts['train'][0])}"
    about += f" in {len(classes)} classes" if classes else ""
    about += f"; {len(made['test'])} others for testing" if "test" in made else ""
    return DataSet(train, made.get("test"), classes, about)


def _check_part(
    x: np.ndarray, y: np.ndarray | None, where: str, shape: tuple[int, ...]
) -> None:
    """
    shape: of the examples for training.

    Raises:
      ValueError: if these are no examples, or the labels are not theirs.
    """
    wrong = ""
    if x.ndim == 0 or len(x) == 0:
        wrong = f"has shape {x.shape}: there are no examples along its first axis"
    elif x.dtype.kind not in "biuf":
        wrong = f"has dtype {x.dtype}: examples are numbers, real ones"
    elif x.shape[1:] != shape:
        wrong = f"has examples of shape {x.shape[1:]}, those for training have {shape}"
    elif y is not None and (y.ndim != 1 or len(y) != len(x)):
        wrong = (
            f"has {len(x)} examples, but labels of shape {y.shape}{at(user_source())}\n"
            "Labels are one number for each example."
        )
        if y.ndim == 2 and len(y) == len(x):
            wrong += " One-hot ones become so by `y.argmax(-1)`."
    elif y is not None and y.dtype.kind == "f" and not np.isfinite(y).all():
        first = int(np.argmin(np.isfinite(y)))
        wrong = f"has labels that are not finite: that of example {first} is {y[first]}"
    if wrong:
        place = "" if "\n" in wrong else at(user_source())
        raise ValueError(f"{where} {wrong}{place}")


def _class_names(values: np.ndarray) -> tuple[str, ...]:
    if _count_from_0(values):
        return tuple(map(str, range(int(values[-1]) + 1)))
    return tuple(map(str, values))


def _count_from_0(values: np.ndarray) -> bool:
    """Whether labels, in order, number classes: one that no example has is one still,
    if it is less than others. Where most were such, they are names, as other words."""
    if not np.issubdtype(values.dtype, np.integer) or values[0] < 0:
        return False
    return int(values[-1]) < max(_MOST, _SPARSE * len(values))


def _labels(y: np.ndarray, classes: tuple[str, ...] | None) -> np.ndarray:
    if classes is None:
        return y.astype(np.float32)
    number = {name: i for i, name in enumerate(classes)}
    kinds, where = np.unique(y, return_inverse=True)
    return np.array([number[str(v)] for v in kinds], np.int32)[where]


def _shape_text(x: np.ndarray) -> str:
    if x.ndim == 3 or (x.ndim == 4 and x.shape[-1] in (1, 3, 4)):
        return "images of " + "x".join(map(str, x.shape[1:]))
    return f"examples of shape {x.shape[1:]}" if x.ndim > 1 else "numbers"


# IDX ----------------------------------------------------------------------------------

_IDX_DTYPES: dict[int, np.dtype[Any]] = {
    0x08: np.dtype(np.uint8),
    0x09: np.dtype(np.int8),
    0x0B: np.dtype(">i2"),
    0x0C: np.dtype(">i4"),
    0x0D: np.dtype(">f4"),
    0x0E: np.dtype(">f8"),
}


def _idx_pairs(path: Path) -> dict[str, tuple[Path, Path]]:
    """The files with images and labels, of training and of testing."""
    files = [path] if path.is_file() else sorted(path.iterdir())
    found = {}
    for images in files:
        if "images" not in images.name or "idx" not in images.name:
            continue
        name = images.name.replace("images", "labels").replace("idx3", "idx1")
        labels = images.with_name(name)
        if not labels.exists():
            raise FileNotFoundError(
                f"{images} has no labels: there is no {name} beside it"
                f"{at(user_source())}"
            )
        part = "test" if any(t in images.name for t in _TEST) else "train"
        found[part] = images, labels
    if set(found) == {"test"}:
        return {"train": found["test"]}
    return found


def _idx(images: Path, labels: Path) -> Part:
    return _idx_array(images), _idx_array(labels), str(images)


def _idx_array(path: Path) -> np.ndarray:
    """The array in an IDX file (LeCun, *The MNIST database*, 1998)."""
    try:
        raw = path.read_bytes()
        data = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except (OSError, EOFError) as error:
        raise ValueError(f"{path} can't be read: {error}{at(user_source())}") from None
    kind, rank = data[2:4] if len(data) >= 4 else (0, 0)
    if data[:2] != b"\0\0" or kind not in _IDX_DTYPES or len(data) < 4 + 4 * rank:
        raise ValueError(
            f"{path} is no IDX file: it begins with {data[:4]!r}{at(user_source())}"
        )
    shape = tuple(np.frombuffer(data, np.dtype(">u4"), rank, 4).astype(int).tolist())
    values = np.frombuffer(data, _IDX_DTYPES[kind], offset=4 + 4 * rank)
    if len(values) != np.prod(shape, dtype=int):
        raise ValueError(
            f"{path} says that it holds {shape}, but has {len(values)} values"
            f"{at(user_source())}"
        )
    return values.reshape(shape).astype(values.dtype.newbyteorder("="))
