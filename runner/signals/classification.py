"""Measures of a classifier, from its confusion matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def confusion(truth: ArrayLike, predicted: ArrayLike, classes: int) -> NDArray[np.int64]:
    """Counts, shape (classes, classes): rows are the true label, columns the predicted one."""
    cells = np.asarray(truth) * classes + np.asarray(predicted)
    return np.bincount(cells, minlength=classes * classes).reshape(classes, classes)


def classification_report(matrix: NDArray[np.int64], labels: list[str]) -> dict[str, Any]:
    """accuracy, macro_f1, majority (share of the most frequent true label), per class precision, recall, f1, support.

    A class that is never predicted has precision 0, one without rows recall 0. macro_f1 is the mean over all labels.
    """
    hits = np.diag(matrix).astype(float)
    support = matrix.sum(axis=1)
    predicted = matrix.sum(axis=0)
    precision = np.divide(hits, predicted, out=np.zeros_like(hits), where=predicted > 0)
    recall = np.divide(hits, support, out=np.zeros_like(hits), where=support > 0)
    both = precision + recall
    f1 = np.divide(2 * precision * recall, both, out=np.zeros_like(hits), where=both > 0)
    rows = max(int(support.sum()), 1)
    return {
        "accuracy": float(hits.sum() / rows),
        "macro_f1": float(f1.mean()),
        "majority": float(support.max() / rows),
        "per_class": {
            label: {"precision": p, "recall": r, "f1": f, "support": int(n)}
            for label, p, r, f, n in zip(
                labels, precision.tolist(), recall.tolist(), f1.tolist(), support.tolist(), strict=True
            )
        },
        "confusion": {"labels": labels, "rows_are_truth": matrix.tolist()},
    }
