"""The best items by their scores, in native code: ops.nn.ctc_search.Best, step by step.

Items are i64 numbers; `score` points to their scores. A list of items has a `state` of two words:
the number of its items, and what is known about their order. The algorithms are those of C++'s
standard library, because they determine the order of items with equal scores.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace._src.compile.codegen.emit import I1, I64, PTR, Function, Operand, Reg, Type
from headrace._src.compile.codegen.kernel_spec import Team

__all__ = ["BestItems", "ItemFunctions"]

_COUNT, _ORDER = 0, 1
_UNORDERED, _WORST_FIRST, _HEAP = 0, 1, 2
_SHORT = 16  # runs that are left to the insertions


class ItemFunctions:
    """The functions of a module for items whose scores have one type."""

    def __init__(self, team: Team, type: Type) -> None:
        self.team, self.type = team, type
        self.sift = self._sift()
        self.pop = self._pop()
        self.make_heap = self._make_heap()
        self.sort_heap = self._sort_heap()
        self.quicksort = self._quicksort()
        self.insert = self._insert()

    def better(self, f: Function, score: Reg, x: Operand, y: Operand) -> Reg:
        """Whether item x has a better score than item y."""
        return f.fcmp("ogt", f.load(self.type, score, x), f.load(self.type, score, y))

    # A heap has its worst item first.

    def _sift(self) -> Function:
        """(items, score, hole, size, item): put the item into a heap that has a hole."""
        f = self.team.helper("sift", [PTR, PTR, I64, I64, I64])
        items, score, top, size, item = f.parameters

        def child_of(hole: Reg) -> Reg:
            return f.add(f.mul(hole, 2), 2)

        def sink(hole: Reg) -> Reg:
            right = child_of(hole)
            left = f.sub(right, 1)
            right_item, left_item = f.load(I64, items, right), f.load(I64, items, left)
            use_left = self.better(f, score, right_item, left_item)
            f.store(f.select(use_left, left_item, right_item), items, hole)
            return f.select(use_left, left, right)

        (hole,) = f.repeat(lambda h: f.icmp("slt", child_of(h), size), sink, [top])
        last = f.sub(size, 1)

        def take_last() -> Reg:
            f.store(f.load(I64, items, last), items, hole)
            return last

        (hole,) = f.when(f.icmp("eq", child_of(hole), size), take_last, lambda: hole)

        def parent_of(hole: Reg) -> Reg:
            return f.lshr(f.sub(hole, 1), 1)

        def rises(hole: Reg) -> Reg:
            below_top = f.icmp("sgt", hole, top)
            (worse,) = f.when(
                below_top,
                lambda: self.better(f, score, f.load(I64, items, parent_of(hole)), item),
                lambda: f.const(False, I1),
            )
            return worse

        def rise(hole: Reg) -> Reg:
            parent = parent_of(hole)
            f.store(f.load(I64, items, parent), items, hole)
            return parent

        (hole,) = f.repeat(rises, rise, [hole])
        f.store(item, items, hole)
        return f.finish()

    def _pop(self) -> Function:
        """(items, score, size): move the worst item of a heap to its end."""
        f = self.team.helper("pop", [PTR, PTR, I64])
        items, score, size = f.parameters
        last = f.sub(size, 1)
        item = f.load(I64, items, last)
        f.store(f.load(I64, items), items, last)
        f.call_function(self.sift, items, score, 0, last, item)
        return f.finish()

    def _make_heap(self) -> Function:
        """(items, score, size)"""
        f = self.team.helper("make_heap", [PTR, PTR, I64])
        items, score, size = f.parameters
        count = f.lshr(size, 1)

        def place(i: Reg) -> None:
            hole = f.sub(f.sub(count, 1), i)
            f.call_function(self.sift, items, score, hole, size, f.load(I64, items, hole))

        f.loop(0, count, place)
        return f.finish()

    def _sort_heap(self) -> Function:
        """(items, score, size)"""
        f = self.team.helper("sort_heap", [PTR, PTR, I64])
        items, score, size = f.parameters
        f.loop(
            0,
            f.sub(size, 1),
            lambda i: f.call_function(self.pop, items, score, f.sub(size, i)) and None,
        )
        return f.finish()

    # Introsort: quicksort down to short runs, heap sort where it gets too deep, then insertions.

    def swap(self, f: Function, items: Reg, i: Operand, j: Operand) -> None:
        x, y = f.load(I64, items, i), f.load(I64, items, j)
        f.store(y, items, i)
        f.store(x, items, j)

    def _quicksort(self) -> Function:
        """(items, score, count, depth): leave runs of _SHORT items in any order."""
        partition = self._partition()
        f = self.team.helper("quicksort", [PTR, PTR, I64, I64])
        items, score, count, depth = f.parameters

        def is_long(count: Reg, depth: Reg) -> Reg:
            return f.icmp("sgt", count, _SHORT)

        def part(count: Reg, depth: Reg) -> list[Reg]:
            def by_heap() -> Reg:
                f.call_function(self.make_heap, items, score, count)
                f.call_function(self.sort_heap, items, score, count)
                return f.const(0, I64)

            def by_parts() -> Reg:
                cut = f.call_function(partition, items, score, count)
                rest = f.offset(items, cut, I64)
                f.call_function(f, rest, score, f.sub(count, cut), f.sub(depth, 1))
                return cut

            (left,) = f.when(f.icmp("eq", depth, 0), by_heap, by_parts)
            return [left, f.sub(depth, 1)]

        f.repeat(is_long, part, [count, depth])
        return f.finish()

    def _partition(self) -> Function:
        """(items, score, count) -> where the second part begins."""
        f = self.team.helper("partition", [PTR, PTR, I64], I64)
        items, score, count = f.parameters
        places = [f.const(1, I64), f.lshr(count, 1), f.sub(count, 1)]
        a, b, c = (f.load(self.type, score, f.load(I64, items, p)) for p in places)
        a_b, b_c, a_c = (f.fcmp("ogt", x, y) for x, y in ((a, b), (b, c), (a, c)))
        first, middle, last = places
        if_a = f.select(b_c, middle, f.select(a_c, last, first))
        if_b = f.select(a_c, first, f.select(b_c, last, middle))
        self.swap(f, items, 0, f.select(a_b, if_a, if_b))
        pivot = f.load(self.type, score, f.load(I64, items))

        def of(i: Reg) -> Reg:
            return f.load(self.type, score, f.load(I64, items, i))

        def advance(low: Reg, high: Reg) -> tuple[Reg, Reg]:
            (low,) = f.repeat(lambda i: f.fcmp("ogt", of(i), pivot), lambda i: f.add(i, 1), [low])
            (high,) = f.repeat(
                lambda i: f.fcmp("ogt", pivot, of(i)), lambda i: f.sub(i, 1), [f.sub(high, 1)]
            )
            return low, high

        def exchange(low: Reg, high: Reg) -> tuple[Reg, Reg]:
            self.swap(f, items, low, high)
            return advance(f.add(low, 1), high)

        low, _ = f.repeat(
            lambda low, high: f.icmp("slt", low, high),
            exchange,
            advance(f.const(1, I64), count),
        )
        return f.finish(low)

    def _insert(self) -> Function:
        """(items, score, count): sort items of which none is far from its place."""
        f = self.team.helper("insert", [PTR, PTR, I64])
        items, score, count = f.parameters

        def place(i: Reg) -> None:
            item = f.load(I64, items, i)

            def goes_before(at: Reg) -> Reg:
                (before,) = f.when(
                    f.icmp("sgt", at, 0),
                    lambda: self.better(f, score, item, f.load(I64, items, f.sub(at, 1))),
                    lambda: f.const(False, I1),
                )
                return before

            def shift(at: Reg) -> Reg:
                f.store(f.load(I64, items, f.sub(at, 1)), items, at)
                return f.sub(at, 1)

            (at,) = f.repeat(goes_before, shift, [i])
            f.store(item, items, at)

        f.loop(1, count, place)
        return f.finish()


@dataclass(frozen=True)
class BestItems:
    """At most `limit` items, in a function that is being written; there is room for one more."""

    functions: ItemFunctions
    f: Function
    items: Reg
    score: Reg
    state: Reg
    limit: Reg

    def clear(self) -> None:
        f = self.f
        for word in (_COUNT, _ORDER):
            f.store(f.const(0, I64), self.state, word)

    def count(self) -> Reg:
        f = self.f
        return f.minimum(f.load(I64, self.state, _COUNT), self.limit)

    def is_full(self) -> Reg:
        return self.f.icmp("sge", self.f.load(I64, self.state, _COUNT), self.limit)

    def knows_worst(self) -> Reg:
        """Whether the worst item comes first."""
        return self.f.icmp("ne", self.f.load(I64, self.state, _ORDER), _UNORDERED)

    def worst(self) -> Reg:
        """Return the item with the worst score, after moving it to the front."""
        f, items, score = self.f, self.items, self.score

        def find() -> None:
            def worse(i: Reg, worst: Reg) -> Reg:
                first, second = f.load(I64, items, worst), f.load(I64, items, i)
                return f.select(self.functions.better(f, score, first, second), i, worst)

            (worst,) = f.loop(1, f.load(I64, self.state, _COUNT), worse, [f.const(0, I64)])
            self.functions.swap(f, items, 0, worst)
            f.store(f.const(_WORST_FIRST, I64), self.state, _ORDER)

        f.when(f.icmp("eq", f.load(I64, self.state, _ORDER), _UNORDERED), find)
        return f.load(I64, items)

    def push(self, item: Reg) -> None:
        f, items, score, state = self.f, self.items, self.score, self.state
        count = f.load(I64, state, _COUNT)

        def to_heap() -> None:
            def replace() -> None:
                f.store(item, items, self.limit)
                f.call_function(self.functions.pop, items, score, count)

            better = self.functions.better(f, score, item, f.load(I64, items))
            f.when(better, replace)

        def to_list() -> None:
            f.store(item, items, count)
            more = f.add(count, 1)
            f.store(more, state, _COUNT)
            knows = f.icmp("eq", f.load(I64, state, _ORDER), _WORST_FIRST)
            better = self.functions.better(f, score, item, f.load(I64, items))
            swap = f.and_(knows, f.xor(better, True))
            f.when(swap, lambda: self.functions.swap(f, items, 0, count))

            def begin_heap() -> None:
                f.call_function(self.functions.make_heap, items, score, more)
                f.call_function(self.functions.pop, items, score, more)
                f.store(f.const(_HEAP, I64), state, _ORDER)

            f.when(f.icmp("sgt", more, self.limit), begin_heap)

        f.when(f.icmp("eq", f.load(I64, state, _ORDER), _HEAP), to_heap, to_list)

    def sort(self) -> None:
        """Put the best first."""
        f, items, score = self.f, self.items, self.score
        count = self.count()

        def by_parts() -> None:
            bits = f.call("llvm.ctlz.i64", I64, count, f.const(False, I1))
            depth = f.mul(f.sub(63, bits), 2)
            f.call_function(self.functions.quicksort, items, score, count, depth)
            f.call_function(self.functions.insert, items, score, count)

        f.when(
            f.icmp("eq", f.load(I64, self.state, _ORDER), _HEAP),
            lambda: f.call_function(self.functions.sort_heap, items, score, count) and None,
            by_parts,
        )
