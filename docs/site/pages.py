"""What the site has beside the pages of `docs/`: the reference, a page for each public
module, and the files of the repository to which pages link.

mkdocs calls the `on_…` functions (`hooks` in mkdocs.yml).
"""

from __future__ import annotations

import ast
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
TREE = ROOT / "build" / "types"  # `make types`: the folders as one package
MODULES = {
    "treadle": "transforms, loops, arrays",
    "treadle.nn": "modules, layers, losses",
    "treadle.nn.init": "initialisers",
    "treadle.optim": "optimizers, schedules",
    "treadle.optim.tree": "arithmetic of pytrees",
    "treadle.rng": "random numbers",
    "treadle.tree": "pytrees",
    "treadle.numpy": "NumPy's functions",
    "treadle.numpy.linalg": "linear algebra",
    "treadle.numpy.fft": "Fourier transforms",
    "treadle.data": "loaders, files",
    "treadle.data.augment": "changes of images at random",
    "treadle.metrics": "metrics",
    "treadle.checkpoint": "saving and restoring",
    "treadle.weights": "files of weights",
    "treadle.models": "models of the field",
    "treadle.recipes": "training from Python",
    "treadle.debug": "looking into programs",
    "treadle.image": "images of other sizes",
    "treadle.lax": "the level below NumPy's",
    "treadle.extend": "operations of one's own",
    "treadle.scipy.special": "special functions",
    "treadle.scipy.stats": "distributions",
    "treadle.scipy.fft": "cosine transforms",
    "treadle.scipy.signal": "convolutions, spectra",
    "treadle.scipy.interpolate": "values between the points of a grid",
    "treadle.scipy.ndimage": "arrays between their elements",
    "treadle.scipy.spatial.transform": "rotations of space",
    "treadle.scipy.cluster.vq": "the nearest of some codes",
    "treadle.scipy.optimize": "minima",
    "treadle.scipy.integrate": "differential equations",
    "treadle.scipy.sparse.linalg": "large linear equations",
    "treadle.dtypes": "element types",
}
ALONGSIDE = [
    *("CHANGELOG.md", "CONTRIBUTING.md"),
    *(f"{folder}/README.md" for folder in ("core", "recipes", "benchmarks")),
]
CELL = re.compile(r"<td.*?</td>", re.S)
CODE = re.compile(r"(?<=<code>)[^<]+(?=</code>)")
JOINT = re.compile(r"(?<=\w[._])(?=\w)")
LINK = re.compile(r"(\]\()(?!https?:|#|mailto:)([^)\s#]+)")


def public(module: str) -> dict[str, str]:
    """The public names of a module, without modules, and where each is from, as its
    source tells."""
    body = ast.parse(_source(module).read_text()).body
    branches = [s for node in body if isinstance(node, ast.If) for s in node.orelse]
    found: dict[str, str] = {}
    for node in [*body, *branches]:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = module
        elif isinstance(node, ast.ImportFrom):
            found |= _imported(node)
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            found = {n: found.get(n, module) for n in ast.literal_eval(node.value)}
    names = sorted((n for n in found if not n.startswith("_")), key=str.lower)
    return {name: found[name] for name in names}


def _imported(node: ast.ImportFrom) -> dict[str, str]:
    home = str(node.module)
    if home.partition(".")[0] != "treadle":
        return {}
    found: dict[str, str] = {}
    for name in node.names:
        if name.name == "*":
            found |= public(home)
        elif name.asname in (None, name.name) and not _exists(f"{home}.{name.name}"):
            found[name.name] = home
    return found


def _source(module: str) -> Path:
    path = TREE.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _exists(module: str) -> bool:
    return _source(module).exists()


def reference(module: str) -> str:
    """The page of a module. What is called like the file that it is from hides behind
    that file, so it is named by its full path, after the others."""
    names = public(module)
    hidden = [name for name in names if _exists(f"{module}.{name}")]
    members = "".join(f"        - {n}\n" for n in names if n not in hidden)
    page = f"::: {module}\n    options:\n      members:\n{members}"
    for name in hidden:
        options = "heading_level: 2\n      show_root_full_path: false"
        page += f"\n::: {names[name]}.{name}\n    options:\n      {options}\n"
    return page


def contents() -> str:
    """The first page of the reference."""
    rows = "".join(f"| [`{m}`]({m}.md) | {what} |\n" for m, what in MODULES.items())
    return f"# Reference\n\n| module | what it has |\n| --- | --- |\n{rows}"


def on_config(config: Any) -> None:
    """The reference comes last in the navigation."""
    pages = [{module: f"reference/{module}.md"} for module in MODULES]
    config.nav.append({"Reference": ["reference/index.md", *pages]})


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages of the reference, and what pages link to outside of `docs/`."""
    pages = {f"reference/{module}.md": reference(module) for module in MODULES}
    pages["reference/index.md"] = contents()
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    found = [f.src_uri for f in files.documentation_pages() if f.src_uri not in pages]
    waiting = [*ALONGSIDE, *(t for page in found for t in outside(page))]
    while waiting:
        path = waiting.pop()
        if files.get_file_from_path(path) is None:
            files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
            waiting += outside(path)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links as they are in the site."""
    source = page.file.src_uri
    if source.startswith("reference/"):
        return markdown
    return LINK.sub(lambda m: m[1] + _in_site(source, m[2]), markdown)


def on_post_page(output: str, **_: Any) -> str:
    """Names in tables may be broken where their parts meet. By now the search has been
    told the names, without that."""

    def broken(cell: re.Match[str]) -> str:
        return CODE.sub(lambda code: JOINT.sub("<wbr>", code[0]), cell[0])

    return CELL.sub(broken, output)


def outside(page: str) -> list[str]:
    """Files of the repository, but outside of `docs/`, to which a page links."""
    path = _path(page)
    if path.suffix != ".md":
        return []
    text = path.read_text()
    found = [_target(page, link) for _, link in LINK.findall(text)]
    return [t for t in found if not t.startswith("docs/") and (ROOT / t).is_file()]


def _target(source: str, link: str) -> str:
    """The place in the repository to which a link of a page of the site leads."""
    here = _path(source).relative_to(ROOT).parent.as_posix()
    return posixpath.normpath(posixpath.join(here, link))


def _path(source: str) -> Path:
    """The file of a page that is not of the reference."""
    path = ROOT / "docs" / source
    return path if path.exists() else ROOT / source


def _in_site(source: str, link: str) -> str:
    target = _target(source, link).removeprefix("docs/")
    return posixpath.relpath(target, posixpath.dirname(source) or ".")
