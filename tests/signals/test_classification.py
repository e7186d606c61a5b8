"""Accuracy, macro-F1 and the confusion matrix by hand."""

from __future__ import annotations

import numpy as np
import pytest

from runner.signals.classification import classification_report, confusion


def test_confusion_rows_are_truth() -> None:
    matrix = confusion([0, 0, 1, 2, 2, 2], [0, 1, 1, 2, 2, 0], 3)
    assert matrix.tolist() == [[1, 1, 0], [0, 1, 0], [1, 0, 2]]


def test_report_by_hand() -> None:
    report = classification_report(np.array([[1, 1, 0], [0, 1, 0], [1, 0, 2]]), ["a", "b", "c"])
    assert report["accuracy"] == pytest.approx(4 / 6)
    assert report["majority"] == pytest.approx(0.5)
    assert report["per_class"]["a"] == pytest.approx({"precision": 0.5, "recall": 0.5, "f1": 0.5, "support": 2})
    assert report["per_class"]["b"]["f1"] == pytest.approx(2 * 0.5 * 1 / 1.5)
    assert report["per_class"]["c"]["f1"] == pytest.approx(2 * 1 * (2 / 3) / (5 / 3))
    assert report["macro_f1"] == pytest.approx((0.5 + 2 / 3 + 0.8) / 3)


def test_a_class_that_is_never_predicted_or_absent_scores_zero() -> None:
    report = classification_report(np.array([[2, 0, 0], [1, 0, 0], [0, 0, 0]]), ["a", "b", "c"])
    assert report["per_class"]["b"]["precision"] == 0.0
    assert report["per_class"]["c"]["recall"] == 0.0
    assert report["macro_f1"] == pytest.approx((2 * (2 / 3) / (5 / 3)) / 3)
