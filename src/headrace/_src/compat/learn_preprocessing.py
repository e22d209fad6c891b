"""`tensorflow.contrib.learn.preprocessing`: texts to arrays of numbers. In: an iterable of texts.
Out: one array for each, of as many words or bytes as asked for, filled with zeros.

Number 0 is the unknown word, and the others come in the order in which words are first seen.
Attributes have the names that TensorFlow's have, so that its pickled processors can be restored.
"""

from __future__ import annotations

import pickle
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

__all__ = [
    "ByteProcessor",
    "CategoricalVocabulary",
    "TOKENIZER_RE",
    "VocabularyProcessor",
    "tokenizer",
]

TOKENIZER_RE = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z][a-z]+(?=[A-Z])|[\'\w\-]+", re.UNICODE)


def tokenizer(iterator: Iterable[str]) -> Iterator[list[str]]:
    """Yield the words of each text."""
    return map(TOKENIZER_RE.findall, iterator)


class CategoricalVocabulary:
    """Numbers categories, such as words, and counts them.

    unknown_token    the category of number 0
    support_reverse  whether `reverse` is possible
    """

    def __init__(self, unknown_token: str = "<UNK>", support_reverse: bool = True) -> None:
        self._unknown_token = unknown_token
        self._mapping: dict[Any, int] = {unknown_token: 0}
        self._support_reverse = support_reverse
        if support_reverse:
            self._reverse_mapping: list[Any] = [unknown_token]
        self._freq: dict[Any, int] = defaultdict(int)
        self._freeze = False

    def __len__(self) -> int:
        return len(self._mapping)

    def freeze(self, freeze: bool = True) -> None:
        """Stop numbering new categories, or start again."""
        self._freeze = freeze

    def get(self, category: Any) -> int:
        """Return the number of a category. A new one gets the next, or 0 if none may be added."""
        if category not in self._mapping:
            if self._freeze:
                return 0
            self._mapping[category] = len(self._mapping)
            if self._support_reverse:
                self._reverse_mapping.append(category)
        return self._mapping[category]

    def add(self, category: Any, count: int = 1) -> None:
        """Count a category."""
        number = self.get(category)
        if number > 0:  # the unknown category is not counted
            self._freq[category] += count

    def trim(self, min_frequency: int, max_frequency: int = -1) -> None:
        """Keep the categories that were seen more than `min_frequency` times and less than
        `max_frequency` times, if that is positive, and number them by falling frequency.
        """
        seen = sorted(sorted(self._freq.items(), key=_is_text), key=_count, reverse=True)
        kept = [
            (category, count)
            for category, count in seen
            if count > min_frequency and (max_frequency <= 0 or count < max_frequency)
        ]
        categories = [self._unknown_token, *(category for category, _ in kept)]
        self._mapping = {category: number for number, category in enumerate(categories)}
        if self._support_reverse:
            self._reverse_mapping = categories
        self._freq = defaultdict(int, kept)

    def reverse(self, class_id: int) -> Any:
        """Return the category of a number."""
        if not self._support_reverse:
            raise ValueError(
                "This vocabulary wasn't initialized with support_reverse to support reverse() "
                "function."
            )
        return self._reverse_mapping[class_id]


class VocabularyProcessor:
    """Maps texts to numbers of words.

    max_document_length  the words of a result: longer texts are cut, shorter ones filled with 0
    min_frequency        words that were seen at most this often become unknown
    vocabulary           a CategoricalVocabulary; a new one if None
    tokenizer_fn         a function from texts to lists of words
    """

    def __init__(
        self,
        max_document_length: int,
        min_frequency: int = 0,
        vocabulary: CategoricalVocabulary | None = None,
        tokenizer_fn: Callable[[Iterable[str]], Iterable[Iterable[str]]] | None = None,
    ) -> None:
        self.max_document_length = max_document_length
        self.min_frequency = min_frequency
        self.vocabulary_ = vocabulary or CategoricalVocabulary()
        self._tokenizer = tokenizer_fn or tokenizer

    def fit(self, raw_documents: Iterable[str], unused_y: Any = None) -> VocabularyProcessor:
        """Learn the words of the texts, and freeze the vocabulary."""
        for words in self._tokenizer(raw_documents):
            for word in words:
                self.vocabulary_.add(word)
        if self.min_frequency > 0:
            self.vocabulary_.trim(self.min_frequency)
        self.vocabulary_.freeze()
        return self

    def fit_transform(
        self, raw_documents: Iterable[str], unused_y: Any = None
    ) -> Iterator[np.ndarray]:
        """Learn the words of the texts, and yield the numbers of each text."""
        self.fit(raw_documents)
        return self.transform(raw_documents)

    def transform(self, raw_documents: Iterable[str]) -> Iterator[np.ndarray]:
        """Yield the numbers of each text, int64 [max_document_length]."""
        for words in self._tokenizer(raw_documents):
            numbers = np.zeros(self.max_document_length, np.int64)
            for place, word in zip(range(self.max_document_length), words, strict=False):
                numbers[place] = self.vocabulary_.get(word)
            yield numbers

    def reverse(self, documents: Iterable[Iterable[int]]) -> Iterator[str]:
        """Yield the words of each array of numbers, joined by spaces."""
        for numbers in documents:
            yield " ".join(str(self.vocabulary_.reverse(number)) for number in numbers)

    def save(self, filename: str) -> None:
        """Pickle the processor into a file."""
        with open(filename, "wb") as file:
            pickle.dump(self, file)

    @classmethod
    def restore(cls, filename: str) -> VocabularyProcessor:
        """Return the processor that was saved in a file: one of this library's or TensorFlow's."""
        with open(filename, "rb") as file:
            return pickle.load(file)


class ByteProcessor:
    """Maps texts to bytes, uint8 [max_document_length], filled with 0."""

    def __init__(self, max_document_length: int) -> None:
        self.max_document_length = max_document_length

    def fit(self, x: Any) -> ByteProcessor:
        """Return the processor: there is nothing to learn."""
        return self

    def fit_transform(self, x: Iterable[str | bytes]) -> Iterator[np.ndarray]:
        """Yield the bytes of each text."""
        return self.transform(x)

    def transform(self, x: Iterable[str | bytes]) -> Iterator[np.ndarray]:
        """Yield the bytes of each text."""
        for text in x:
            found = np.frombuffer(text.encode() if isinstance(text, str) else text, np.uint8)
            found = found[: self.max_document_length]
            yield np.pad(found, (0, self.max_document_length - len(found)))

    @staticmethod
    def reverse(x: Iterable[np.ndarray]) -> Iterator[str]:
        """Yield the text of each array of bytes; an empty one where they are not UTF-8."""
        for data in x:
            try:
                yield np.trim_zeros(np.asarray(data).astype(np.uint8), trim="b").tobytes().decode()
            except UnicodeDecodeError:
                yield ""


def _is_text(entry: tuple[Any, int]) -> tuple[bool, Any]:
    category, _ = entry
    return isinstance(category, str), category


def _count(entry: tuple[Any, int]) -> int:
    return entry[1]
