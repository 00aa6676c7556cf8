"""Labelled examples from files that users have, whole and damaged."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from treadle import data


def picture(seed: int, height: int = 6, width: int = 5, grey: bool = False) -> Any:
    shape = (height, width) if grey else (height, width, 3)
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def folder(path: Path, classes: dict[str, list[np.ndarray]]) -> Path:
    for name, images in classes.items():
        (path / name).mkdir(parents=True)
        for i, pixels in enumerate(images):
            Image.fromarray(pixels).save(path / name / f"{i}.png")
    return path


def everything(found: data.Labelled) -> tuple[Any, Any]:
    (batch,) = data.Loader(found, len(found), shuffle=False)
    return batch


def test_a_folder_of_images(tmp_path: Path) -> None:
    images = {"cat": [picture(0), picture(1)], "ant": [picture(2)]}
    found = data.read(folder(tmp_path, images))
    assert found.classes == ("ant", "cat")
    assert found.about == "3 images of 6x5x3 in 2 classes (ant, cat)"
    pixels, labels = everything(found.train)
    assert labels.tolist() == [0, 1, 1] and pixels.dtype == np.uint8
    np.testing.assert_array_equal(pixels, np.stack(images["ant"] + images["cat"]))


def test_folders_for_training_and_testing(tmp_path: Path) -> None:
    grey = {"a": [picture(0, grey=True)], "b": [picture(1, grey=True)]}
    folder(tmp_path / "train", grey)
    folder(tmp_path / "val", {"b": [picture(5, 7, 5)]})
    found = data.read(tmp_path)
    assert found.test is not None and "1 others for testing" in found.about
    pixels, labels = everything(found.test)
    assert pixels.shape == (1, 6, 5) and labels.tolist() == [1]
    folder(tmp_path / "val", {"c": [picture(5)]})
    with pytest.raises(ValueError, match="a class that the training images don't"):
        data.read(tmp_path)


def test_images_of_different_sizes(tmp_path: Path) -> None:
    images = {"a": [picture(0, 8, 8), picture(1, 8, 8), picture(2, 12, 4)]}
    folder(tmp_path, images | {"b": [picture(3, 8, 8)]})
    found = data.read(tmp_path)
    assert "sizes from 8x8 to 12x4 are made one" in found.about
    assert everything(found.train)[0].shape == (4, 8, 8, 3)
    small = data.read(tmp_path, image_size=(4, 5))
    assert everything(small.train)[0].shape == (4, 4, 5, 3)


def test_a_damaged_image_is_named(tmp_path: Path) -> None:
    folder(tmp_path, {"a": [picture(0)], "b": [picture(1)]})
    (tmp_path / "b" / "0.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"b/0\.png can't be read: it is no image"):
        data.read(tmp_path)


FORMATS = ["png", "jpg", "gif", "webp", "bmp", "tif", "ppm"]


@pytest.mark.parametrize("kind", FORMATS)
def test_an_image_that_was_cut_off_is_found_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    Image.fromarray(picture(0, 40, 40)).save(path)
    whole = everything(data.read(tmp_path).train)[0]
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    try:  # What ends a file may be missing as long as all pixels are there.
        found = everything(data.read(tmp_path).train)[0]
    except ValueError as error:
        assert f"a.{kind} can't be read: " in str(error)
    else:
        np.testing.assert_array_equal(found, whole)
    for length in [0, 1, 9, len(content) // 3, len(content) - 40]:
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match=rf"a\.{kind} can't be read: .*\n"):
            data.read(tmp_path)


def test_all_damaged_images_are_counted(tmp_path: Path) -> None:
    folder(tmp_path, {"a": [picture(i) for i in range(9)]})
    for i in range(1, 9):
        path = tmp_path / f"a/{i}.png"
        path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ValueError, match=r"(?s)8 images .*/5\.png: .*\nand 3 more\n"):
        data.read(tmp_path)


def test_an_image_that_fails_when_it_is_needed_is_named(tmp_path: Path) -> None:
    folder(tmp_path, {"a": [picture(0, 40, 40), picture(1)]})
    content = (tmp_path / "a/0.png").read_bytes()
    middle = len(content) // 2
    damaged = content[:middle] + bytes(200) + content[middle + 200 :]
    (tmp_path / "a/0.png").write_bytes(damaged)
    found = data.read(tmp_path)
    (tmp_path / "a/1.png").unlink()
    for chosen in ([0], [1]):
        with pytest.raises(ValueError, match=rf"a/{chosen[0]}\.png can't be read: "):
            found.train.source.fetch(np.array(chosen))


@pytest.mark.parametrize("names", ["x y", "images labels", "x_train y_train"])
def test_npz(tmp_path: Path, names: str) -> None:
    x, y = names.split()
    arrays = {x: np.arange(96.0).reshape(6, 4, 4), y: np.array([0, 2, 1, 0, 2, 2])}
    np.savez(tmp_path / "a.npz", **arrays)
    found = data.read(tmp_path / "a.npz")
    assert found.classes == ("0", "1", "2") and found.train.labels is not None
    assert found.train.labels.dtype == np.int32
    assert found.about == "6 images of 4x4 in 3 classes"
    assert found.test is None


def test_npz_with_test_examples_words_and_numbers(tmp_path: Path) -> None:
    x = np.zeros((4, 3), np.float32)
    words = np.array(["no", "yes", "no", "yes"])
    np.savez(tmp_path / "a.npz", x_train=x, y_train=words, x_test=x, y_test=words)
    found = data.read(tmp_path / "a.npz")
    assert found.classes == ("no", "yes") and found.test is not None
    assert found.test.labels is not None and found.test.labels.tolist() == [0, 1, 0, 1]
    np.savez(tmp_path / "b.npz", x=x, y=np.array([0.5, 1.5, 2.0, 3.0]))
    plain = data.read(tmp_path / "b.npz")
    assert plain.classes is None and plain.about == "4 examples of shape (3,)"
    with pytest.raises(
        ValueError, match=r"has arrays z float32\[4, 3\], of which none"
    ):
        np.savez(tmp_path / "c.npz", z=x)
        data.read(tmp_path / "c.npz")
    with pytest.raises(ValueError, match=r"4 examples, but labels of shape \(3,\)"):
        np.savez(tmp_path / "d.npz", x=x, y=np.arange(3))
        data.read(tmp_path / "d.npz")


def idx(values: np.ndarray, kind: int = 0x08) -> bytes:
    head = struct.pack(f">BBBB{values.ndim}I", 0, 0, kind, values.ndim, *values.shape)
    return head + values.astype(values.dtype.newbyteorder(">")).tobytes()


@pytest.mark.parametrize("compressed", [True, False])
def test_idx(tmp_path: Path, compressed: bool) -> None:
    pack = gzip.compress if compressed else bytes
    end = ".gz" if compressed else ""
    images, labels = picture(0, 5 * 28, 28, grey=True), np.arange(5, dtype=np.uint8)
    images = images.reshape(5, 28, 28)
    for part in ("train", "t10k"):
        (tmp_path / f"{part}-images-idx3-ubyte{end}").write_bytes(pack(idx(images)))
        (tmp_path / f"{part}-labels-idx1-ubyte{end}").write_bytes(pack(idx(labels)))
    found = data.read(tmp_path)
    assert found.about == "5 images of 28x28 in 5 classes; 5 others for testing"
    np.testing.assert_array_equal(found.train.inputs, images)
    alone = data.read(tmp_path / f"t10k-images-idx3-ubyte{end}")
    assert alone.test is None and len(alone.train) == 5


def test_damaged_idx(tmp_path: Path) -> None:
    path = tmp_path / "a-images-idx3-ubyte"
    path.write_bytes(idx(np.zeros((3, 2, 2), np.uint8))[:-1])
    with pytest.raises(FileNotFoundError, match="no a-labels-idx1-ubyte beside it"):
        data.read(path)
    (tmp_path / "a-labels-idx1-ubyte").write_bytes(idx(np.zeros(3, np.uint8)))
    with pytest.raises(ValueError, match=r"holds \(3, 2, 2\), but has 11 values"):
        data.read(path)
    path.write_bytes(b"PK\3\4 something else")
    with pytest.raises(ValueError, match="is no IDX file: it begins with b'PK"):
        data.read(path)


CSV = """age, city, score
30, Rome, 1.5
, Paris, 2.5
40, ?, 3.5
50, Rome, 4.25
"""


def test_tables(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(CSV)
    found = data.read(path)
    assert found.about == (
        "4 rows of 1 numbers and 1 categories; score is to be predicted, a number; "
        "2 values are missing"
    )
    assert [c.name for c in found.columns] == ["age", "city"]
    assert found.columns[1].categories == ("Paris", "Rome")
    inputs, labels = everything(found.train)
    assert inputs["categories"].ravel().tolist() == [2, 1, 0, 2]
    np.testing.assert_array_equal(inputs["numbers"].ravel(), [30, np.nan, 40, 50])
    assert labels.tolist() == [1.5, 2.5, 3.5, 4.25]


def test_the_target_of_a_table(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("kind;x;y\nb;1;7\na;2;7\nb;3;8\n")
    assert data.read(path, target="kind").classes == ("a", "b")
    assert data.read(path).classes == ("7", "8")
    with pytest.raises(ValueError, match=r"no column 'z'[\s\S]*kind, x, y"):
        data.read(path, target="z")
    path.write_text("x,y\n1,2\n3\n")
    with pytest.raises(ValueError, match="line 3: 1 values, where the header has 2"):
        data.read(path)
    path.write_text("x,y\n1,\n3,4\n")
    with pytest.raises(ValueError, match="1 rows have no y, the first in line 2"):
        data.read(path)


def test_what_is_set_apart(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(100), y=np.arange(100) % 3)
    found = data.read(tmp_path / "a.npz")
    one, again, other = found.split(), found.split(), found.split(seed=1)
    assert one.test is not None and again.test is not None and other.test is not None
    assert (len(one.train), len(one.test)) == (80, 20)
    assert not set(one.train.inputs) & set(one.test.inputs)
    assert (one.test.inputs == again.test.inputs).all()
    assert (one.test.inputs != other.test.inputs).any()
    assert one.split(0.5) is one
    with pytest.raises(ValueError, match="leaves nothing to test"):
        found.split(0.001)


def test_what_can_not_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is nothing at"):
        data.read(tmp_path / "none.npz")
    with pytest.raises(ValueError, match="none of the files that can be read"):
        data.read(tmp_path)
    (tmp_path / "a.npz").write_bytes(b"PK nothing")
    with pytest.raises(ValueError, match=r"a\.npz can't be read"):
        data.read(tmp_path / "a.npz")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"no folder in .* holds images"):
        data.read(tmp_path)
