"""`report.html`: the verdict first, then the charts, the numbers behind it and the configuration.

One file without any other: style, script and data lie inside it, and its content security policy forbids the browser to
ask for anything. The charts are drawn by `charts.js`, not by plotly: a file of 0.1 MB that can be mailed, and that a
sweep can hold a hundred of, instead of 5 MB each; the values under the pointer stand in the legend of every chart at
once, where on a telephone plotly's box would cover the curve.
"""

from runner.report.page.write import write_page

__all__ = ["write_page"]
