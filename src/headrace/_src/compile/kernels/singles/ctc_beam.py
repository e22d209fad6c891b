"""The beam search of CTC's decoder, equal to that of ops.nn.ctc_search item by item.

Threads divide the sequences. A thread's working memory holds arrays of 8-byte words: the tree of
prefixes with a hash table from (prefix, label) to its extension, the rows of the beam before and
after a step, the items that compete, and which rows extend which.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from headrace._src.compile.codegen import vector_math
from headrace._src.compile.codegen.emit import F64, I1, I64, Function, Operand, Reg
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.codegen.pointwise_code import memory_type
from headrace._src.compile.kernels.singles.best_items import BestItems, ItemFunctions

__all__ = ["CtcBeamSearch", "beam_memory"]

_MULTIPLIER = 0x9E3779B97F4A7C15 - 2**64  # of the hash table: 2^64 divided by the golden ratio

# How many places each array has, in the order of `sizes`' words after the first five.
_AREAS = ("nodes", "table", "rows", "items", "children", "classes")
_ARRAYS = {
    "parent": "nodes", "label": "nodes", "row_of": "nodes", "keys": "table", "found": "table",
    "node": "rows", "new_node": "rows", "total": "rows", "old_blank": "rows", "blank": "rows",
    "ends": "rows", "new_blank": "rows", "new_ends": "rows",
    "score": "items", "new_score": "items", "source": "items", "said_label": "items",
    "list": "items", "best": "items", "children": "children", "said": "classes", "words": "rows",
}  # fmt: skip
_LIST, _BEST, _NODES, _ROWS, _FLOOR, _USED, _SPARE = 0, 2, 4, 5, 6, 7, 8  # in `words`
_WORDS = 16


def beam_memory(steps: int, classes: int, width: int, paths: int) -> tuple[list[int], int]:
    """The sizes of the areas, and of all arrays together, in places of 8 bytes."""
    nodes = steps * width + 1
    table = 1 << (2 * nodes).bit_length()
    areas = {
        "nodes": nodes,
        "table": table,
        "rows": max(width, _WORDS),
        "items": 2 * width + max(paths, 2) + 2,
        "children": width * classes,
        "classes": classes,
    }
    return [areas[a] for a in _AREAS], sum(areas[a] for a in _ARRAYS.values())


@dataclass(frozen=True)
class CtcBeamSearch:
    """The `paths` best label sequences of each sequence. `sizes`, as int64: steps, sequences,
    classes, width, paths, and what `beam_memory` gives; `work`: so much memory for each thread.
    labels: [sequences, paths, steps] int64; counts: [sequences, paths], -1 where no path was found.
    """

    dtype: str

    arguments = ("sizes", "logits", "lengths", "out:work", "out:labels", "out:counts",
                 "out:scores")  # fmt: skip
    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f = team.f
        items = ItemFunctions(team, memory_type(self.dtype))
        log_add = _log_add_function(team, self.dtype)
        search = _Search(team, self, items, log_add)
        f.loop(*team.share(search.batch), search.emit)


class _Search:
    """The code for one sequence."""

    def __init__(
        self, team: Team, spec: CtcBeamSearch, items: ItemFunctions, log_add: Function
    ) -> None:
        self.f = f = team.f
        self.type = memory_type(spec.dtype)
        self.log_add = log_add
        sizes, self.logits, self.lengths, work, self.labels, self.counts, self.scores = team.args
        words = [f.load(I64, sizes, i) for i in range(6 + len(_AREAS))]
        self.steps, self.batch, self.classes, self.width, self.paths = words[:5]
        self.areas: dict[str, Reg] = dict(zip(_AREAS, words[5:], strict=False))
        self.arrays: dict[str, Reg] = {}
        place: Operand = f.mul(words[5 + len(_AREAS)], team.thread)
        for name, area in _ARRAYS.items():
            self.arrays[name] = f.offset(work, place, I64)
            place = f.add(place, self.areas[area])
        self.blank_class = f.sub(self.classes, 1)

        def best(name: str, first: int, limit: Reg) -> BestItems:
            state = f.offset(self.at("words"), first, I64)
            return BestItems(items, f, self.at(name), self.at("score"), state, limit)

        self.leaves = best("list", _LIST, self.width)
        self.winners = best("best", _BEST, self.paths)

    def at(self, name: str) -> Reg:
        """Where an array begins."""
        return self.arrays[name]

    def whole(self, name: str, index: Operand) -> Reg:
        return self.f.load(I64, self.at(name), index)

    def number(self, name: str, index: Operand) -> Reg:
        return self.f.load(self.type, self.at(name), index)

    def put(self, value: Operand, name: str, index: Operand) -> None:
        value = value if isinstance(value, Reg) else self.f.const(value, I64)
        self.f.store(value, self.at(name), index)

    def put_number(self, value: float | Reg, name: str, index: Operand) -> None:
        value = value if isinstance(value, Reg) else self.f.const(value, self.type)
        self.f.store(value, self.at(name), index)

    # -- One sequence ----------------------------------------------------------------------------

    def emit(self, b: Reg) -> None:
        f = self.f
        f.loop(0, self.areas["table"], lambda i: self.put(0, "keys", i))
        f.loop(0, self.areas["children"], lambda i: self.put(0, "children", i))
        for name, value in (("parent", -1), ("label", -1), ("row_of", 1), ("node", 0)):
            self.put(value, name, 0)
        for name, number in (("score", 0.0), ("blank", 0.0), ("ends", -inf)):
            self.put_number(number, name, 0)
        self.put(1, "words", _NODES)
        self.put(1, "words", _ROWS)
        self.leaves.clear()
        self.leaves.push(f.const(0, I64))

        def step(t: Reg) -> None:
            cells = f.mul(f.add(f.mul(t, self.batch), b), self.classes)
            logits = f.offset(self.logits, cells, self.type)
            self._sort()
            norm = self._say(logits)
            self._stay(logits, norm)
            self._extend()

        f.loop(0, f.load(I64, self.lengths, b), step)
        self._finish(b)

    def _say(self, logits: Reg) -> Reg:
        """Write the classes' log probabilities, rounded as in ops.nn.ctc_search; return the
        logarithm of their sum.
        """
        f = self.f

        def logit(i: Operand) -> Reg:
            return f.load(self.type, logits, i)

        (largest,) = f.loop(
            1, self.classes, lambda i, x: vector_math.maximum(f, x, logit(i)), [logit(0)]
        )

        def add(i: Reg, x: Reg) -> Reg:
            return f.fadd(x, _rounded(f, vector_math.exp, f.fsub(logit(i), largest)))

        (total,) = f.loop(0, self.classes, add, [f.const(0.0, self.type)])
        norm = f.fadd(largest, _rounded(f, vector_math.log, total))
        f.loop(0, self.classes, lambda i: self.put_number(f.fsub(logit(i), norm), "said", i))
        return norm

    # -- The rows of a step ----------------------------------------------------------------------

    def _sort(self) -> None:
        """Make rows of the items that were kept, best first."""
        f = self.f
        self.leaves.sort()
        count = self.leaves.count()
        rows = self.whole("words", _ROWS)

        def forget(r: Reg) -> None:
            self.put(0, "row_of", self.whole("node", r))

        def write(i: Reg) -> None:
            item = self.whole("list", i)
            score = self.number("score", item)
            self.put_number(score, "new_score", i)

            def row() -> list[Reg]:
                return [
                    self.whole("node", item), self.number("blank", item), self.number("ends", item),
                ]  # fmt: skip

            def extension() -> list[Reg]:
                node = self.whole("node", self.whole("source", item))
                child = self._child(node, self.whole("said_label", item))
                return [child, f.const(-inf, self.type), score]

            node, blank, ends = f.when(f.icmp("slt", item, rows), row, extension)
            self.put(node, "new_node", i)
            self.put_number(blank, "new_blank", i)
            self.put_number(ends, "new_ends", i)

        def keep(i: Reg) -> None:
            node = self.whole("new_node", i)
            self.put(node, "node", i)
            self.put(f.add(i, 1), "row_of", node)
            self.put_number(self.number("new_score", i), "total", i)
            self.put_number(self.number("new_blank", i), "old_blank", i)
            self.put_number(self.number("new_ends", i), "ends", i)

        f.loop(0, rows, forget)
        f.loop(0, count, write)
        f.loop(0, count, keep)
        self.put(count, "words", _ROWS)

    def _child(self, node: Reg, label: Reg) -> Reg:
        """The node of a prefix with a label added; it is made if there was none."""
        f = self.f
        mask = f.sub(self.areas["table"], 1)
        key = f.add(f.add(f.mul(node, self.classes), label), 1)
        mixed = f.wrapping("mul", key, _MULTIPLIER)
        start = f.and_(f.lshr(mixed, 20), mask)

        def is_other(at: Reg) -> Reg:
            there = self.whole("keys", at)
            return f.and_(f.icmp("ne", there, 0), f.icmp("ne", there, key))

        (at,) = f.repeat(is_other, lambda at: f.and_(f.add(at, 1), mask), [start])

        def make() -> None:
            new = self.whole("words", _NODES)
            self.put(f.add(new, 1), "words", _NODES)
            self.put(key, "keys", at)
            self.put(new, "found", at)
            self.put(node, "parent", new)
            self.put(label, "label", new)
            self.put(0, "row_of", new)

        f.when(f.icmp("eq", self.whole("keys", at), 0), make)
        return self.whole("found", at)

    def _stay(self, logits: Reg, norm: Reg) -> None:
        """Score the rows as they are: a blank, or the last label once more."""
        f = self.f
        blank_logit = f.load(self.type, logits, self.blank_class)
        self.leaves.clear()

        def stay(r: Reg) -> None:
            total = self.number("total", r)
            blank = f.fsub(f.fadd(total, blank_logit), norm)
            node = self.whole("node", r)

            def say_again() -> Reg:
                label = self.whole("label", node)
                parent = self.whole("parent", node)
                above = f.sub(self.whole("row_of", parent), 1)

                def inherit() -> Reg:
                    self._adopt(above, label, r)
                    again = f.icmp("eq", label, self.whole("label", parent))
                    handed = f.select(
                        again, self.number("old_blank", above), self.number("total", above)
                    )
                    # A prefix that has become impossible adds nothing to its extensions.
                    impossible = f.fcmp("oeq", self.number("score", above), -inf)
                    lost = f.and_(f.icmp("slt", above, r), impossible)
                    return f.select(lost, -inf, handed)

                (handed,) = f.when(
                    f.icmp("sge", above, 0), inherit, lambda: f.const(-inf, self.type)
                )
                ends = f.call_function(self.log_add, self.number("ends", r), handed)
                return f.fadd(ends, self.number("said", label))

            (ends,) = f.when(f.icmp("sgt", node, 0), say_again, lambda: f.const(-inf, self.type))
            self.put_number(blank, "blank", r)
            self.put_number(ends, "ends", r)
            self.put_number(f.call_function(self.log_add, blank, ends), "score", r)
            self.leaves.push(r)

        f.loop(0, self.whole("words", _ROWS), stay)

    def _adopt(self, above: Reg, label: Reg, row: Reg) -> None:
        """Note that a row is the extension of another one by a label."""
        f = self.f
        self.put(f.add(row, 1), "children", f.add(f.mul(above, self.classes), label))

    # -- Extensions ------------------------------------------------------------------------------

    def _accepts(self, score: Reg) -> Reg:
        f, leaves = self.f, self.leaves
        (floor,) = f.when(
            leaves.is_full(),
            lambda: self.number("score", leaves.worst()),
            lambda: f.const(-inf, self.type),
        )
        return f.fcmp("ogt", score, floor)

    def _extend(self) -> None:
        """Make the rows and their extensions by every label compete for the beam's places."""
        f = self.f
        rows = self.whole("words", _ROWS)
        self.put(0, "words", _USED)
        self.put(-1, "words", _SPARE)

        def extend(r: Reg) -> None:
            total = self.number("total", r)
            possible = f.fcmp("ogt", total, -inf)
            (wanted,) = f.when(possible, lambda: self._accepts(total), lambda: f.const(False, I1))
            children = f.offset(self.at("children"), f.mul(r, self.classes), I64)

            def labels() -> None:
                own = self.whole("label", self.whole("node", r))
                # Below the floor no extension is accepted; as long as it isn't known, all may be.
                self.put_number(-inf, "words", _FLOOR)

                def label(k: Reg) -> None:
                    from_blank = f.icmp("eq", k, own)
                    before = f.select(from_blank, self.number("old_blank", r), total)
                    score = f.fadd(self.number("said", k), before)
                    child = f.sub(f.load(I64, children, k), 1)
                    hopeful = f.fcmp("ogt", score, self.number("words", _FLOOR))
                    known = f.icmp("sge", child, 0)
                    f.when(f.or_(hopeful, known), lambda: self._compete(r, k, child, score, rows))

                f.loop(0, self.blank_class, label)

            f.when(wanted, labels)

        f.loop(0, rows, extend)

        def forget(r: Reg) -> None:
            node = self.whole("node", r)

            def clear() -> None:
                above = f.sub(self.whole("row_of", self.whole("parent", node)), 1)
                at = f.add(f.mul(above, self.classes), self.whole("label", node))
                f.when(f.icmp("sge", above, 0), lambda: self.put(0, "children", at))

            f.when(f.icmp("sgt", node, 0), clear)

        f.loop(0, rows, forget)

    def _compete(self, r: Reg, label: Reg, child: Reg, score: Reg, rows: Reg) -> None:
        """Take an extension among the leaves, if it isn't there and is good enough."""
        f = self.f
        known = f.icmp("sge", child, 0)
        (there,) = f.when(
            known,
            lambda: f.fcmp("one", self.number("score", child), -inf),
            lambda: f.const(False, I1),
        )

        def consider() -> None:
            possible = f.fcmp("ogt", score, -inf)
            (accepted,) = f.when(possible, lambda: self._accepts(score), lambda: f.const(False, I1))

            def reject() -> None:
                # A row that was displaced from the beam is not extended itself.
                f.when(known, lambda: self.put_number(-inf, "total", child))

            f.when(accepted, lambda: self._take(r, label, child, score, rows), reject)

            def note_floor() -> None:
                self.put_number(self.number("score", self.leaves.worst()), "words", _FLOOR)

            f.when(f.and_(self.leaves.is_full(), self.leaves.knows_worst()), note_floor)

        f.when(f.xor(there, True), consider)

    def _take(self, r: Reg, label: Reg, child: Reg, score: Reg, rows: Reg) -> None:
        f = self.f
        full = self.leaves.is_full()

        def drive_out() -> Reg:
            worst = self.leaves.worst()
            self.put_number(-inf, "score", worst)
            return worst

        (worst,) = f.when(full, drive_out, lambda: f.const(-1, I64))

        def old() -> Reg:
            self.put_number(-inf, "blank", child)
            self.put_number(score, "ends", child)
            return child

        def new() -> Reg:
            spare = self.whole("words", _SPARE)

            def fresh() -> Reg:
                used = self.whole("words", _USED)
                self.put(f.add(used, 1), "words", _USED)
                return f.add(rows, used)

            (item,) = f.when(f.icmp("sge", spare, 0), lambda: spare, fresh)
            self.put(-1, "words", _SPARE)
            self.put(r, "source", item)
            self.put(label, "said_label", item)
            return item

        (item,) = f.when(f.icmp("sge", child, 0), old, new)
        self.put_number(score, "score", item)
        self.leaves.push(item)
        f.when(f.icmp("sge", worst, rows), lambda: self.put(worst, "words", _SPARE))

    # -- Results ---------------------------------------------------------------------------------

    def _finish(self, b: Reg) -> None:
        f = self.f
        self.winners.clear()
        f.loop(0, self.leaves.count(), lambda i: self.winners.push(self.whole("list", i)))
        self.winners.sort()
        count = self.winners.count()
        rows = self.whole("words", _ROWS)

        def write(i: Reg) -> None:
            place = f.add(f.mul(b, self.paths), i)
            target = f.offset(self.labels, f.mul(place, self.steps), I64)
            item = self.whole("best", i)

            def row() -> list[Reg]:
                return [self.whole("node", item), f.const(-1, I64)]

            def extension() -> list[Reg]:
                return [
                    self.whole("node", self.whole("source", item)),
                    self.whole("said_label", item),
                ]

            node, last = f.when(f.icmp("slt", item, rows), row, extension)
            more = f.convert("zext", f.icmp("sge", last, 0), I64)
            depth, _ = f.repeat(
                lambda n, at: f.icmp("sgt", at, 0),
                lambda n, at: [f.add(n, 1), self.whole("parent", at)],
                [more, node],
            )
            end = f.sub(depth, 1)
            f.when(f.icmp("sge", last, 0), lambda: f.store(last, target, end))

            def label(at: Reg, where: Reg) -> list[Reg]:
                f.store(self.whole("label", at), target, where)
                return [self.whole("parent", at), f.sub(where, 1)]

            f.repeat(lambda at, where: f.icmp("sgt", at, 0), label, [node, f.sub(end, more)])
            f.store(depth, self.counts, place)
            f.store(self.number("score", item), self.scores, place)

        f.loop(0, count, write)
        f.loop(
            count,
            self.paths,
            lambda i: f.store(f.const(-1, I64), self.counts, f.add(f.mul(b, self.paths), i)),
        )


def _rounded(f: Function, function: Callable[[Function, Reg], Reg], x: Reg) -> Reg:
    """A function's float64 value, rounded to the type of its argument."""
    if x.type is F64:
        return function(f, x)
    return f.convert("fptrunc", function(f, f.convert("fpext", x, F64)), x.type)


def _log_add_function(team: Team, dtype: str) -> Function:
    """log(exp(x) + exp(y)); every function is rounded to the type of the numbers."""
    type = memory_type(dtype)
    f = team.helper("log_add", [type, type], type)
    x, y = f.parameters
    large, small = vector_math.maximum(f, x, y), vector_math.minimum(f, x, y)
    never = f.fcmp("oeq", large, -inf)

    def add() -> Reg:
        part = _rounded(f, vector_math.exp, f.fsub(small, large))
        return f.fadd(large, _rounded(f, vector_math.log1p, part))

    (total,) = f.when(never, lambda: large, add)
    f.finish(total)
    return f
