"""The beam search of CTC's decoder, for one sequence. In: logits [time, classes]. Out: label
sequences and their log probabilities, best first.

Equal scores are common (logits that are all alike); which of them survive depends on the order in
which TensorFlow visits them and on the binary heap that it keeps them in. Both are the same here:
`Best` reproduces the heap of C++'s standard library, and sums are rounded at the same places.
"""

from __future__ import annotations

import numpy as np

__all__ = ["search"]

_NEVER = -np.inf


def search(logits: np.ndarray, width: int, count: int) -> tuple[list[list[int]], list[float]]:
    """Return at most `count` of the best label sequences, and their log probabilities."""
    beam = _Beam(logits.dtype, width)
    for step in logits:
        beam.advance(step)
    best = Best(count, beam.score)
    for item in beam.leaves.unsorted():
        best.push(item)
    items = best.sorted()
    return [beam.path(item) for item in items], [beam.score[item] for item in items]


class _Beam:
    """The prefixes that are kept while a sequence is read.

    Items are numbers: those below len(nodes) are the prefixes after the previous step, by row, and
    others their extensions (`extensions`: row and label). `leaves` holds the items that are kept,
    `score` every item's log probability. A prefix has two more: of the paths that end in a blank
    and of those that end in its last label, because only the former may repeat it.
    """

    def __init__(self, dtype: np.dtype, width: int) -> None:
        self.dtype, self.width = dtype, width
        self.tree = _PrefixTree()
        self.nodes = [self.tree.ROOT]
        self.blank = np.zeros(1, dtype)
        self.label = np.full(1, _NEVER, dtype)
        self.extensions: list[tuple[int, int]] = []
        self.score: list[float] = [0.0]
        self.leaves = Best(width, self.score)
        self.leaves.push(0)

    def path(self, item: int) -> list[int]:
        """Return the labels of an item."""
        rows = len(self.nodes)
        if item < rows:
            return self.tree.path(self.nodes[item])
        row, label = self.extensions[item - rows]
        return [*self.tree.path(self.nodes[row]), label]

    def advance(self, logits: np.ndarray) -> None:
        """Read one more step."""
        self._sort()
        with np.errstate(invalid="ignore"):  # subtracting infinities
            said = logits - _log_sum(logits)
            before = np.array(self.score, self.dtype), self.blank
            parents = self._parents()
            self._stay(logits, said, parents, before)
        self._extend(said, parents, before)

    def _sort(self) -> None:
        """Turn the kept items into rows, best first."""
        items = self.leaves.sorted()
        rows = len(self.nodes)
        self.score = [self.score[item] for item in items]
        new = [item >= rows for item in items]
        self.blank = np.array([_NEVER if n else self.blank[i] for i, n in zip(items, new)])
        self.label = np.array(
            [s if n else self.label[i] for i, n, s in zip(items, new, self.score)]
        )
        self.blank, self.label = self.blank.astype(self.dtype), self.label.astype(self.dtype)
        self.nodes = [
            self._child(*self.extensions[i - rows]) if n else self.nodes[i]
            for i, n in zip(items, new)
        ]
        self.extensions = []

    def _child(self, row: int, label: int) -> int:
        return self.tree.child(self.nodes[row], label)

    def _parents(self) -> np.ndarray:
        """Return the row of each row's prefix without its last label; -1 if it isn't kept."""
        place = {node: row for row, node in enumerate(self.nodes)}
        return np.array([place.get(self.tree.parent[node], -1) for node in self.nodes])

    def _stay(
        self,
        logits: np.ndarray,
        said: np.ndarray,
        parents: np.ndarray,
        before: tuple[np.ndarray, np.ndarray],
    ) -> None:
        """Score the rows unchanged: after a blank, or the last label repeated."""
        total, blank = before
        labels = np.array([self.tree.label[node] for node in self.nodes])
        again = (parents >= 0) & (labels == labels[parents])
        inherited = np.where(again, blank[parents], total[parents])
        own = np.where(labels < 0, _NEVER, said[labels]).astype(self.dtype)
        rows = np.arange(len(labels))
        heirs = parents >= 0
        self.blank = (total + logits[-1]) - _log_sum(logits)
        old_label = self.label
        while True:
            from_parent = np.where(heirs, inherited, _NEVER).astype(self.dtype)
            self.label = _log_add(old_label, from_parent) + own
            score = _log_add(self.blank, self.label)
            # A prefix that has become impossible contributes nothing to later ones.
            lost = heirs & (parents < rows) & (score[parents] == _NEVER)
            if not lost.any():
                break
            heirs &= ~lost
        self.score = score.tolist()

    def _extend(
        self, said: np.ndarray, parents: np.ndarray, before: tuple[np.ndarray, np.ndarray]
    ) -> None:
        """Let the rows and their extensions by every label compete for places in the beam.

        An extension that is already a row isn't added again. A row that was evicted is not extended
        itself, if its prefix comes before it.
        """
        total, blank = before[0].tolist(), before[1]
        rows = len(self.nodes)
        leaves = self.leaves = Best(self.width, self.score)
        for row in range(rows):
            leaves.push(row)
        labels = [self.tree.label[node] for node in self.nodes]
        children: list[dict[int, int]] = [{} for _ in range(rows)]
        for row, parent in enumerate(parents.tolist()):
            if parent >= 0:
                children[parent][labels[row]] = row
        for row in range(rows):
            if not leaves.accepts(total[row]):
                continue
            scores = said[:-1] + before[0][row]
            if labels[row] >= 0:
                scores[labels[row]] = said[labels[row]] + blank[row]
            hopeful = np.nonzero(scores > leaves.floor())[0].tolist()
            for label in sorted({*hopeful, *children[row]}):
                score = float(scores[label])
                child = children[row].get(label)
                if child is not None and self.score[child] != _NEVER:
                    continue
                if not leaves.accepts(score):
                    if child is not None:
                        total[child] = _NEVER
                    continue
                if leaves.is_full():
                    self.score[leaves.worst()] = _NEVER
                if child is None:
                    child = rows + len(self.extensions)
                    self.extensions.append((row, label))
                    self.score.append(score)
                else:
                    self.blank[child], self.label[child], self.score[child] = _NEVER, score, score
                leaves.push(child)


def _log_sum(logits: np.ndarray) -> np.generic:
    """Return log(sum(exp(logits))), summed from first to last in the type of the logits."""
    dtype = logits.dtype.type
    largest = logits.max()
    shifted = np.exp((logits - largest).astype(np.float64)).astype(logits.dtype)
    return largest + dtype(np.log(np.float64(np.cumsum(shifted)[-1])))


def _log_add(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return log(exp(x) + exp(y)); every function is rounded to the type of the numbers."""
    large, small = np.maximum(x, y), np.minimum(x, y)
    apart = np.where(large == _NEVER, 0, small - large).astype(x.dtype)
    part = np.exp(apart.astype(np.float64)).astype(x.dtype)
    added = large + np.log1p(part.astype(np.float64)).astype(x.dtype)
    return np.where(large == _NEVER, large, added)


class _PrefixTree:
    """Label prefixes by number: each node has a parent, a last label, and children by label."""

    ROOT = 0

    def __init__(self) -> None:
        self.parent = [-1]
        self.label = [-1]
        self._children: dict[tuple[int, int], int] = {}

    def child(self, parent: int, label: int) -> int:
        """Return the node of `parent`'s prefix followed by `label`."""
        if (parent, label) not in self._children:
            self._children[parent, label] = len(self.parent)
            self.parent.append(parent)
            self.label.append(label)
        return self._children[parent, label]

    def path(self, node: int) -> list[int]:
        """Return the labels from the root to `node`."""
        labels = []
        while node != self.ROOT:
            labels.append(self.label[node])
            node = self.parent[node]
        return labels[::-1]


class Best:
    """The `limit` items with the best scores among those pushed.

    Items with equal scores come out in the order that C++'s algorithms produce: a vector with the
    worst item first, once that was requested; after the first excess item, a heap whose last place
    is free; sorted by introsort or heap sort.
    """

    def __init__(self, limit: int, score: list[float]) -> None:
        self._limit, self._score = limit, score
        self._items: list[int] = []
        self._is_heap = self._knows_worst = False

    def is_full(self) -> bool:
        return self._is_heap or len(self._items) == self._limit

    def worst(self) -> int:
        """Return the item with the worst score."""
        items, score = self._items, self._score
        if not self._is_heap and not self._knows_worst:
            # Swap the first of the worst items with the first item.
            worst = min(range(len(items)), key=lambda i: score[items[i]])
            items[0], items[worst] = items[worst], items[0]
            self._knows_worst = True
        return items[0]

    def floor(self) -> float:
        """Return the score above which an item is accepted."""
        return self._score[self.worst()] if self.is_full() else _NEVER

    def accepts(self, score: float) -> bool:
        return score > _NEVER and score > self.floor()

    def push(self, item: int) -> None:
        items, score = self._items, self._score
        if self._is_heap:
            if score[item] > score[items[0]]:
                items[-1] = item
                self._pop(len(items))
            return
        items.append(item)
        if self._knows_worst and not score[item] > score[items[0]]:
            items[0], items[-1] = items[-1], items[0]
        if len(items) > self._limit:
            self._make_heap(0, len(items))
            self._pop(len(items))
            self._is_heap = True

    def unsorted(self) -> list[int]:
        return self._items[: self._limit]

    def sorted(self) -> list[int]:
        """Remove and return the items, best first."""
        items = self._items
        if self._is_heap:
            items.pop()
            self._sort_heap(0, len(items))
        else:
            self._sort()
        self._items, self._is_heap, self._knows_worst = [], False, False
        return items

    # A heap of the items from `first` on has its worst item there.

    def _sift(self, first: int, hole: int, size: int, item: int) -> None:
        """Put `item` into the heap, which has a hole: move the hole down to a leaf, then up to
        where the item belongs.
        """
        items, score = self._items, self._score
        top = hole
        while 2 * hole + 2 < size:
            child = 2 * hole + 2
            if score[items[first + child]] > score[items[first + child - 1]]:
                child -= 1
            items[first + hole] = items[first + child]
            hole = child
        if 2 * hole + 2 == size:
            items[first + hole] = items[first + size - 1]
            hole = size - 1
        while hole > top and score[items[first + (hole - 1) // 2]] > score[item]:
            items[first + hole] = items[first + (hole - 1) // 2]
            hole = (hole - 1) // 2
        items[first + hole] = item

    def _make_heap(self, first: int, size: int) -> None:
        for hole in range(size // 2 - 1, -1, -1):
            self._sift(first, hole, size, self._items[first + hole])

    def _pop(self, size: int, first: int = 0) -> None:
        """Move the worst item of a heap to its end."""
        last = first + size - 1
        item = self._items[last]
        self._items[last] = self._items[first]
        self._sift(first, 0, size - 1, item)

    def _sort_heap(self, first: int, size: int) -> None:
        for left in range(size, 1, -1):
            self._pop(left, first)

    # Introsort: quicksort down to short runs, heap sort where recursion gets too deep, then
    # insertion.

    def _sort(self) -> None:
        count = len(self._items)
        self._quicksort(0, count, 2 * (count.bit_length() - 1))
        self._insert(count)

    def _quicksort(self, first: int, last: int, depth: int) -> None:
        while last - first > _SHORT:
            if not depth:
                self._make_heap(first, last - first)
                self._sort_heap(first, last - first)
                return
            depth -= 1
            cut = self._partition(first, last)
            self._quicksort(cut, last, depth)
            last = cut

    def _partition(self, first: int, last: int) -> int:
        """Partition a run at the median of three of its items, which is put first."""
        items, score = self._items, self._score
        three = (first + 1, first + (last - first) // 2, last - 1)
        a, b, c = (score[items[i]] for i in three)
        if a > b:
            middle = 1 if b > c else 2 if a > c else 0
        else:
            middle = 0 if a > c else 2 if b > c else 1
        place = three[middle]
        items[first], items[place] = items[place], items[first]
        pivot = score[items[first]]
        low, high = first + 1, last
        while True:
            while score[items[low]] > pivot:
                low += 1
            high -= 1
            while pivot > score[items[high]]:
                high -= 1
            if low >= high:
                return low
            items[low], items[high] = items[high], items[low]
            low += 1

    def _insert(self, count: int) -> None:
        """Sort items that are all near their final position, keeping the order of equal ones."""
        items, score = self._items, self._score
        for i in range(1, count):
            item = items[i]
            place = i
            while place and score[item] > score[items[place - 1]]:
                items[place] = items[place - 1]
                place -= 1
            items[place] = item


_SHORT = 16  # runs that are left to insertion sort
