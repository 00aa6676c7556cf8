"""Ways to read something that is no argument: a jitted function computes with what is
there at the call, however it is spelled."""

from __future__ import annotations

import collections
import contextvars
import dataclasses
import enum
import functools
import importlib
import sys
import types
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle.errors import SideEffectWarning

pytestmark = pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")

N = types.SimpleNamespace


class Asked:
    """Has what is in a dict as attributes."""

    def __init__(self) -> None:
        self.d = {"k": 2.0}

    def __getattr__(self, name: str) -> Any:
        return self.__dict__["d"][name]


class AskedFirst(Asked):
    def __getattribute__(self, name: str) -> Any:
        get = object.__getattribute__
        return get(self, "d")["k"] if name == "k" else get(self, name)


class Attributes(dict[str, Any]):
    __getattr__ = dict.__getitem__


class Listed(list[Any]):
    pass


class Table(collections.abc.Mapping[str, Any]):
    def __init__(self) -> None:
        self.d = {"k": 2.0}

    def __getitem__(self, key: str) -> Any:
        return self.d[key]

    def __iter__(self) -> Any:
        return iter(self.d)

    def __len__(self) -> int:
        return len(self.d)


class Base:
    rate = 2.0
    only: Any = None

    def __init__(self, k: float = 2.0) -> None:
        self._k, self.k = k, k
        self.inner = N(k=k, d={"k": k})

    @property
    def shown(self) -> float:
        return self._k

    @property
    def within(self) -> Any:
        return self.inner

    @classmethod
    def one(cls) -> Any:
        return cls.only

    def me(self) -> Any:
        return self

    def table(self) -> Any:
        return self.inner.d

    def times(self, x: Any, by: Any) -> Any:
        return x * by["k"]

    def each(self) -> Any:
        yield from self.inner.d.values()


class Derived(Base):
    def above(self) -> float:
        return super().rate


class Holder:
    def __init__(self, settings: Any) -> None:
        self.settings = settings

    def get(self) -> Any:
        return self.settings["k"]


@dataclasses.dataclass
class Data:
    k: float = 2.0


class Kind(enum.Enum):
    A = 2.0
    B = 7.0


class Descriptor:
    def __get__(self, x: Any, kind: Any) -> Any:
        return x.__dict__["_k"]


class Described:
    k = Descriptor()

    def __init__(self) -> None:
        self._k = 2.0


Pair = collections.namedtuple("Pair", "a b")
SEVEN = "d['k'] = 7.0"
MODULES = ["copy", "itertools", "json", "math", "operator", "threading", "weakref"]
NUMBERS = "a = np.array([2.0, 3.0])"

# What there is; what the function gives; what then changes.
ROWS = [
    # Attributes, by other names.
    ("o = N(k=2.0)", "x * vars(o)['k']", "o.k = 7.0"),
    ("o = N(k=2.0)", "x * o.__dict__.get('k')", "o.k = 7.0"),
    ("o = N(k=2.0)", "x * sum(vars(o).values())", "o.k = 7.0"),
    ("o = N(k=2.0)", "(lambda k: x * k)(**vars(o))", "o.k = 7.0"),
    ("o = N(k=2.0)", "x * o.__getattribute__('k')", "o.k = 7.0"),
    ("o = N(k=2.0)", "x * object.__getattribute__(o, 'k')", "o.k = 7.0"),
    ("o = N(k=2.0)", "x * getattr(o, ''.join(['k']))", "o.k = 7.0"),
    ("o = N(k=2.0)", "x * sum(getattr(o, n) for n in 'k')", "o.k = 7.0"),
    ("o = N(k=2.0); g = operator.attrgetter('k')", "x * g(o)", "o.k = 7.0"),
    ("o = N(k=2.0); l = [o, o]", "x * sum(p.k for p in l)", "o.k = 7.0"),
    ("o = N(k=2.0)", "x * [o][0].k", "o.k = 7.0"),
    ("o = N(k=2.0); p = N(k=3.0)", "x * (o if o.k else p).k", "o.k = 7.0"),
    ("o = N(k=2.0); p = None", "x * (p or o).k", "o.k = 7.0"),
    ("o = N(k=2.0); l = {'a': o}", "x * sum(p.k for _, p in l.items())", "o.k = 7.0"),
    ("o = N(k=2.0); l = [o, o]", "x * sum(map(lambda p: p.k, l))", "o.k = 7.0"),
    ("o = N()", "x * getattr(o, 'k', 2.0)", "o.k = 7.0"),
    ("o = N()", "x * 2 if hasattr(o, 'k') else x", "o.k = 7.0"),
    ("o = Asked()", "x * o.k", "o.d['k'] = 7.0"),
    ("o = AskedFirst()", "x * o.k", "o.d['k'] = 7.0"),
    ("o = Described()", "x * o.k", "o._k = 7.0"),
    ("o = threading.local(); o.k = 2.0", "x * o.k", "o.k = 7.0"),
    ("o = Base(); r = weakref.ref(o)", "x * r().k", "o.k = 7.0"),
    ("o = Data()", "x * dataclasses.asdict(o)['k']", "o.k = 7.0"),
    ("o = Data()", "x * dataclasses.astuple(o)[0]", "o.k = 7.0"),
    ("o = Data()", "x * dataclasses.replace(o).k", "o.k = 7.0"),
    ("o = Data()", "x * copy.copy(o).k", "o.k = 7.0"),
    ("def o(): pass\no.k = 2.0", "x * o.k", "o.k = 7.0"),
    # What a property or method gives.
    ("o = Base()", "x * o.shown", "o._k = 7.0"),
    ("o = Base()", "x * o.within.k", "o.inner.k = 7.0"),
    ("o = Base()", "x * o.me().k", "o.k = 7.0"),
    ("o = Base()", "x * o.table()['k']", "o.inner.d['k'] = 7.0"),
    ("o = Base()", "x * sum(o.each())", "o.inner.d['k'] = 7.0"),
    ("o = Base.only = Base()", "x * Base.one().k", "o.k = 7.0"),
    ("o = Base()\ndef get(): return o", "x * get().k", "o.k = 7.0"),
    # Classes.
    ("o = Base()", "x * o.rate", "o.rate = 7.0"),
    ("class C(Base): pass\no = C()", "x * o.rate", "C.rate = 7.0"),
    ("class C(Base): pass\no = C()", "x * type(o).rate", "C.rate = 7.0"),
    ("class C(Base): pass\no = C()", "x * o.__class__.rate", "C.rate = 7.0"),
    ("class C(Base): pass\no = C()", "x * vars(C).get('rate', 2.0)", "C.rate = 7.0"),
    ("class C(Base): pass\no = C()", "x * o.me().k", "C.me = lambda o: N(k=7.0)"),
    ("class C(Base): pass\no = C()", "x * o.me().k", "o.me = lambda: N(k=7.0)"),
    ("class C(Base): pass\no = C()", "x * o.shown", "C.shown = property(lambda o: 7)"),
    ("class M(type): k = 2.0\nclass C(metaclass=M): pass", "x * C.k", "M.k = 7.0"),
    ("o = Derived()", "x * o.above()", "Base.rate = 7.0"),
    (
        "class E(enum.Enum): A = {'k': 2.0}",
        "x * E.A.value['k']",
        "E.A.value['k'] = 7.0",
    ),
    ("o = N(kind=Kind.A)", "x * o.kind.value", "o.kind = Kind.B"),
    # Containers of other kinds, and looked at as a whole.
    ("d = {'k': 2.0}; c = ChainMap(d, {'k': 1.0})", "x * c['k']", SEVEN),
    ("d = {'k': 2.0}; c = ChainMap({}, d)", "x * c.get('k')", SEVEN),
    ("d = {}; c = ChainMap(d, {'k': 2.0})", "x * c['k']", SEVEN),
    ("d = {'k': 2.0}; c = ChainMap({}, d)", "x * sum(c.values())", SEVEN),
    ("d = collections.UserDict(k=2.0)", "x * d['k']", SEVEN),
    ("d = collections.UserList([2.0])", "x * d[0]", "d[0] = 7.0"),
    ("d = {'k': 2.0}; c = types.MappingProxyType(d)", "x * c['k']", SEVEN),
    ("d = {'k': 2.0}; c = d.values()", "x * sum(c)", SEVEN),
    ("d = {'k': 2.0}; get = d.get", "x * get('k')", SEVEN),
    ("d = Table()", "x * d['k']", "d.d['k'] = 7.0"),
    ("d = Table()", "x * sum(d.values())", "d.d['k'] = 7.0"),
    ("d = Attributes(k=2.0)", "x * d.k", SEVEN),
    ("d = Attributes(k=2.0)", "x * d['k'] * len(d)", SEVEN),
    ("d = Listed([2.0])", "x * sum(d)", "d[0] = 7.0"),
    ("d = {'k': 2.0}", "x * d.__getitem__('k')", SEVEN),
    ("d = {'k': 2.0}", "x * operator.getitem(d, 'k')", SEVEN),
    ("d = {'k': 2.0}", "x * (d | {})['k']", SEVEN),
    ("d = {'k': {'k': 2.0}}", "x * copy.deepcopy(d)['k']['k']", "d['k']['k'] = 7.0"),
    ("d = {'k': 2}", "x * len(json.dumps(d))", "d['k'] = 70"),
    ("d = {'k': 2}", "x * len(str(d))", "d['k'] = 70"),
    ("d = {}", "x if d else x * 2.0", SEVEN),
    ("d = [2.0]", "x * (d + [1.0])[0]", "d[0] = 7.0"),
    ("d = [2.0]", "x if d == [2.0] else x * 2", "d[0] = 7.0"),
    ("d = [2.0]", "x * math.prod(d)", "d[0] = 7.0"),
    ("d = [2.0]", "x * functools.reduce(operator.mul, d)", "d[0] = 7.0"),
    ("d = [2.0]", "x * sum(itertools.chain(d, d))", "d[0] = 7.0"),
    ("d = [2.0]", "x * tnp.asarray(d)", "d[0] = 7.0"),
    ("d = [2.0]", "x * sum(td.tree.leaves(d))", "d[0] = 7.0"),
    ("d = {1}", "x if 1 in d else x * 2", "d.clear()"),
    ("d = Pair([2.0], 1.0)", "x * d[0][0]", "d.a[0] = 7.0"),
    ("d = Pair([2.0], 1.0)", "x * d._asdict()['a'][0]", "d.a[0] = 7.0"),
    # Through arguments of functions.
    ("d = {'k': 2.0}\ndef h(x, *, by): return x * by['k']", "h(x, by=d)", SEVEN),
    ("d = {'k': 2.0}\ndef h(*a): return a[0] * a[1]['k']", "h(x, d)", SEVEN),
    ("d = {'k': 2.0}\ndef h(v): return v[0]['k']", "x * h([d])", SEVEN),
    ("d = {'k': 2.0}; o = Base()", "o.times(x, d)", SEVEN),
    ("d = {'k': 2.0}", "x * Holder(d).get()", SEVEN),
    ("o = N(k=2.0)\ndef h(o, n): return getattr(o, n)", "x * h(o, 'k')", "o.k = 7.0"),
    # What functions are themselves.
    ("def h(x, k=2.0): return x * k", "h(x)", "h.__defaults__ = (7.0,)"),
    ("def h(x, *, k=2.0): return x * k", "h(x)", "h.__kwdefaults__['k'] = 7.0"),
    ("def h(x, k=[2.0]): return x * k[0]", "h(x)", "h.__defaults__[0][0] = 7.0"),
    ("def h(x): return x", "h(x)", "h.__code__ = (lambda x: x * 7.0).__code__"),
    ("h = partial(lambda x, k: x * k, k=2.0)", "h(x)", "h.keywords['k'] = 7.0"),
    ("d = [2.0]; h = partial(lambda l, x: x * l[0], d)", "h(x)", "d[0] = 7.0"),
    ("d = {'k': 2.0}; h = partial(lambda x, l: x * l['k'], l=d)", "h(x)", SEVEN),
    (
        "o = N(k=2.0)\n@functools.singledispatch\ndef h(x): return x * o.k",
        "h(x)",
        "o.k = 7.0",
    ),
    # Modules, contexts.
    ("k = 2.0", "x * globals()['k']", "k = 7.0"),
    ("k = 2.0", "x * sys.modules[__name__].k", "k = 7.0"),
    (
        "o = sys.modules['mine'] = ModuleType('mine'); o.k = 2.0",
        "x * within()",
        "o.k = 7",
    ),
    (
        "d = {'k': 2.0}; o = ModuleType('m'); o.__getattr__ = lambda n: d[n]",
        "x * o.k",
        SEVEN,
    ),
    ("c = ContextVar('c'); c.set(2.0)", "x * c.get()", "c.set(7.0)"),
    ("c = ContextVar('c')", "x * c.get(2.0)", "c.set(7.0)"),
    ("d = {'k': 2.0}; c = ContextVar('c', default=d)", "x * c.get()['k']", SEVEN),
    # Numbers in arrays of NumPy's and in bytes.
    (NUMBERS, "x * float(a[0])", "a[0] = 7.0"),
    (NUMBERS, "x * a.item(1)", "a[1] = 7.0"),
    (NUMBERS, "x * a.tolist()[0]", "a[0] = 7.0"),
    (NUMBERS, "x * 2 if a[0] > 5 else x", "a[0] = 7.0"),
    (NUMBERS, "x * float(np.sum(a))", "a[0] = 7.0"),
    (NUMBERS, "x * tnp.asarray(a)", "a[0] = 7.0"),
    (NUMBERS + "; o = N(a=a)", "x * float(o.a[0])", "a[0] = 7.0"),
    ("a = np.full((300, 300), 2.0)", "x * float(a[0, 0])", "a[:] = 7.0"),
    ("a = bytearray(b'2')", "x * a[0]", "a[0] = 7"),
]


def within() -> Any:
    import mine

    return mine.k


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1])
def test_what_is_read_is_what_is_there(row: tuple[str, str, str]) -> None:
    made, gives, changes = row
    module = types.ModuleType("spelled")
    space = module.__dict__
    space.update({name: x for name, x in globals().items() if name[:2] != "__"})
    space.update(partial=functools.partial, ModuleType=types.ModuleType)
    space.update({name: importlib.import_module(name) for name in MODULES})
    space.update(ChainMap=collections.ChainMap, ContextVar=contextvars.ContextVar)
    rate = Base.rate
    sys.modules["spelled"] = module
    try:
        exec(f"{made}\ndef f(x): return {gives}", space)
        jitted, x = td.jit(space["f"]), tnp.asarray(3.0)
        before = space["f"](x)
        for _ in range(3):
            assert np.array_equal(jitted(x), before)
        exec(changes, space)
        now = space["f"](x)
        assert not np.array_equal(now, before)
        for _ in range(3):
            assert np.array_equal(jitted(x), now)
        assert jitted.report().traces == 2
    finally:
        Base.rate, Base.only = rate, None
        for name in ("spelled", "mine"):
            sys.modules.pop(name, None)


def test_what_is_not_read_may_change() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.rate, self.count, self.log = 2.0, 0, [0.0]

        def scaled(self, x: Any) -> Any:
            return x * self.rate

    trainer, table = Trainer(), {"k": 2.0, "other": 0.0}
    chosen = [{"k": 2.0}, {"k": 3.0}]

    def helper(x: Any, settings: Any) -> Any:
        return x * settings["k"]

    f = td.jit(lambda x: helper(trainer.scaled(x), table) * helper(x, chosen[0]))
    for i in range(5):
        assert f(3.0).item() == 72.0
        trainer.count += 1
        trainer.log.append(i)
        table["other"] += 1.0
        chosen[1] = {}
    assert f.report().traces == 1


def test_numbers_that_have_changed_are_told_of_once() -> None:
    mine = np.ones(3, np.float32)
    f = td.jit(lambda x: x * mine)
    f(1.0)
    mine[0] = 2.0
    with pytest.warns(
        SideEffectWarning, match="the numbers of `mine` were others"
    ) as w:
        f(1.0)
    mine[0] = 3.0
    assert f(1.0)[0] == 3.0
    assert len(w) == 1
    assert "the numbers of `mine` have changed" in str(f.report())
