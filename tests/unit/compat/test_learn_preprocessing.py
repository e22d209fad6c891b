"""Texts to numbers, as tf.contrib.learn.preprocessing of TensorFlow 1.15.5 does it."""

from pathlib import Path

import numpy as np
import pytest

from headrace._src.compat.learn_preprocessing import (
    ByteProcessor,
    CategoricalVocabulary,
    VocabularyProcessor,
)
from tests.unit.compat.test_alias import run

# TensorFlow's processor for the two texts below, saved by TensorFlow 1.15.5.
SAVED = Path(__file__).resolve().parents[2] / "fixtures" / "vocabulary_processor.pkl"
TEXTS = ["Hello, world's hello a b c d e", "it's ünï-code 3.14 don't \n new"]


def test_words():
    processor = VocabularyProcessor(5)
    found = [numbers.tolist() for numbers in processor.fit_transform(TEXTS)]
    assert found == [[1, 2, 3, 4, 5], [9, 10, 11, 12, 13]]
    assert len(processor.vocabulary_) == 15
    assert next(processor.transform(["hello zzz"])).tolist() == [3, 0, 0, 0, 0]
    assert list(processor.reverse([[1, 2, 0]])) == ["Hello world's <UNK>"]


def test_rare_words_are_unknown():
    processor = VocabularyProcessor(4, min_frequency=1).fit(["d a b b c c c e e"])
    assert next(processor.transform(["a b c e"])).tolist() == [0, 2, 1, 3]


def test_own_words():
    processor = VocabularyProcessor(3, tokenizer_fn=lambda texts: (t.split("|") for t in texts))
    assert next(processor.fit_transform(["x y|z"])).tolist() == [1, 2, 0]


def test_vocabularies():
    vocabulary = CategoricalVocabulary()
    for category, count in [("a", 5), ("b", 2), ("c", 9), ("e", 7), (3, 5)]:
        vocabulary.add(category, count)
    vocabulary.trim(2, 7)
    assert [vocabulary.reverse(k) for k in range(len(vocabulary))] == ["<UNK>", 3, "a"]
    vocabulary.freeze()
    assert vocabulary.get("new") == 0
    with pytest.raises(ValueError, match="support_reverse"):
        CategoricalVocabulary(support_reverse=False).reverse(0)


def test_bytes():
    processor = ByteProcessor(6)
    found = [data.tolist() for data in processor.fit_transform(["abcdefgh", "ü", b"xy"])]
    assert found == [[97, 98, 99, 100, 101, 102], [195, 188, 0, 0, 0, 0], [120, 121, 0, 0, 0, 0]]
    assert list(processor.reverse([np.array([97, 98, 0, 0]), np.array([200, 1])])) == ["ab", ""]


def test_saved_processors(tmp_path):
    lines = run(
        f"""
        from tensorflow.contrib import learn
        kind = learn.preprocessing.VocabularyProcessor
        theirs = kind.restore({str(SAVED)!r})
        theirs.save({str(tmp_path / "own")!r})
        for processor in theirs, kind.restore({str(tmp_path / "own")!r}):
            print(*next(processor.transform(["Hello it's zzz"])), len(processor.vocabulary_))
        """
    )
    assert lines == ["1 9 0 0 0 15"] * 2


def test_what_is_missing_says_so():
    lines = run(
        """
        from tensorflow.contrib import learn
        try:
            learn.DNNClassifier
        except AttributeError as error:
            print(error)
        """
    )
    assert lines[0].startswith("tf.contrib.learn.DNNClassifier is not in Headrace")
