"""Every threshold of the diagnosis, with its source. Nothing else in `runner/causes` or `runner/diagnosis` holds one.

"Simulated" means `tests/diagnosis/test_simulated.py`: losses that fall from 1.5 to 1.15 under independent noise with a
coefficient of variation of 0.1 to 0.25, 60 to 3,000 points. "Labelled logs" are those that
`tests/diagnosis/test_real_logs.py` reads.
"""

from __future__ import annotations

LEAST_POINTS = 6
"""Points below which nothing is said about stability unless something is broken. Labelled logs: excerpts of 1 to 5
records carry no verdict, those of 7 and more do."""

STEP_Z = 3.5
"""`level.step_up`: z of a sudden rise. Simulated, 60 points: the largest of a falling curve is below 3.2 in 99 of 100,
of a flat one below 4."""

STEP_SD = 0.95
"""Least sudden rise in standard deviations of single points: tells a level from a drift of very long curves."""

UNUSUAL = 3.0
FAR_SD = 4.0
"""`Rise.unusual`: a curve that drifts up and down all the time rises all the time. A rise of four standard deviations
of single points counts in any case."""

CLIMB_Z = 8.0
"""`level.climb`: z of a rise at any pace, against the lowest stretch before it (which is low by chance)."""

RISE = 0.09
"""Least rise, as a share of the level before: below it even a clear rise is a drift that data order makes."""

RISE_OF_START = 0.03
"""Least rise as a share of the loss at the start of the run: near 0, a few hundredths are much of the level."""

DIVERGES = 0.25
"""A rise of this share that stays is a divergence rather than a risk. Labelled logs: divergences start at 0.7."""

DOUBLES = 0.5
LONG = 0.3
"""A rise of half the level or more that lasts for this share of the run is a divergence too, even if it ends."""

KEPT = 0.5
"""Share of a rise that has to be there at the end for it to count as lasting."""

ABOVE_START = 0.40
"""Log ratio of the end to the start (a factor of 1.5) above which the run made the model worse."""

ABOVE_START_Z = 6.0
"""The same in standard errors, for single noisy first points."""

SPIKE_Z = 10.0
"""Robust z of a single loss spike. Losses of single small batches have tails: log-normal ones reach 8."""

SPIKE_RATIO = 2.0
"""Least height of a single loss spike relative to the level around it (labelled logs: benign tails reach 1.9)."""

BURST_Z = 3.7
"""Height of the median of five neighbouring points above the levels before and after it, in standard deviations of
single points, that makes a burst. Independent noise has hardly any (simulated); a burst of 8 is measured at 6 to 9."""

NORM_SPIKE = 100.0
"""A gradient norm this many times the median is a spike of its own. Labelled logs: norms of 8 to 40 times the median
leave the loss unmoved, and are common."""

NORM_EXPLODES = 100.0
"""Growth of the median gradient norm from the first third of a run to the last that no sound run shows (labelled logs:
sound ones grow up to 8 times, explosions 1,000 times and more)."""

NORM_ABSURD = 1e6
"""Median gradient norm that no sound run has (labelled logs: up to 4e3 with summed losses)."""

NOISE_FACTOR = 1.4
"""Growth of the noise from the first half to the second that counts, in nats and relative to the level."""

NOISE_Z = 5.0
"""The same in standard errors."""

PERIOD_SD = 0.9
"""Least amplitude of a swing with a named period, in standard deviations of what is left. Simulated: a sine of 1.5 is
measured between 1.0 and 2.0 at 60 points."""

PERIOD_SHARE = 0.25
"""Share of the variance that one unnamed frequency needs (Fisher's g) before it is reported; a sine of 1.5 standard
deviations has half of it, an order of rows that repeats every epoch spreads over its harmonics."""

PERIOD_P = 1e-5
"""p of Fisher's test for an unnamed period."""

STAIR_Z = 3.0
STAIR_DROP = 0.03
"""Epoch staircase: drops at epoch ends in standard errors, and as a share of the level (labelled logs: 0.05 to 0.6)."""

RAMP = 0.72
"""`staircase.ramp_share` from which a period of one epoch is a staircase; a sine has 0.61 at most."""

STAIRS_ONLY = 0.8
FEW_PER_EPOCH = 16.0
"""With fewer points per epoch its shape cannot be seen: then this share of the drops kept makes a staircase."""

STAIR_KEPT = 0.3
"""Share of the drops that the run keeps: what climbs up again inside every epoch is a swing, not a staircase."""

FALL_Z = 3.0
"""z of the fall from the first points to the last that counts as learning."""

FALL = 0.01
"""Least fall, as a share of the level, that counts as learning. Labelled logs: stuck ones fall by 0.00 to 0.03 (those
at chance are told by that), the slowest healthy one by 0.05."""

FLAT_POINTS = 15
"""Points from which a missing fall says that nothing is learnt."""

PLATEAU = 0.01
PLATEAU_POINTS = 60
"""Least change of the level over the second half of so many points that counts as still learning."""

CHANCE = 0.02
"""Relative distance of a classifier's level to ln K that counts as chance."""

STILL = 0.02
STILL_FALL = 0.05
"""Noise and fall, relative to the level, below which the loss of an unknown task may be one at chance."""

OVERFIT = 0.05
"""Rise of the held-out loss above its best that is overfitting. Labelled logs: overfit ones rise by 0.11 to 1.5,
healthy ones by at most 0.04."""

OVERFIT_AT_RISK = 0.10
"""From this rise on, the model at the end is clearly worse than the best one."""

MEMORISED = 0.10
"""Level of the train loss, relative to its start, that a run without held-out loss reaches only by heart, when
`MEMORISED_EPOCHS` or more have passed. Labelled logs: memorised ones reach 0.03, a sound one 0.07 after one epoch."""

GAP = 3.0
"""A held-out loss so many times the (low) training loss is overfitting where single evaluations are all there is."""

MEMORISED_EPOCHS = 5.0

UNIFORM = 13.0
"""nats. ln V of the largest vocabularies in use (256,000) is 12.5: a token loss above it is worse than guessing."""

WARMUP = 0.8
"""Share of the planned steps that the warm-up takes before it swallows the run (catalogue B5)."""

RATE_TOO_HIGH = 1e-3
"""A peak learning rate above this is hot for adapters and full fine-tuning of pretrained models alike: published
recipes end at 5e-4 for LoRA, 5e-5 for full fine-tuning. It is a prior, never a proof."""

RATE_HIGH = 5.0
"""Above this multiple of the method's usual rate a rate is called high."""

RATE_LOW = 0.2
"""A rate below this share of the method's default is low (LoRA's default is ten times that of full fine-tuning)."""

ISOLATED = 3
"""So many non-finite norms that recover are the loss scale's search; more, and one looks for a cause."""

ISOLATED_SHARE = 0.05

KAPPA_HIGH = 1.5
"""Lower end of kappa's interval above which sampling does not explain the noise (DESIGN 7.2)."""

R_SQUARED = 0.4
"""Share of the movement that the start model foresees from which it is the data (DESIGN 7.3)."""

REPLAY = 0.3
"""Share of updates that raise the loss of their own batch: the rate is too high; benign below 0.1 (DESIGN 7.5)."""

LINE = 1.0
"""Median of the relative update length s of the line probe: above 1 the steps overshoot (DESIGN 7.4)."""

LOST = 0.2
"""Share of updates that the number format swallows (DESIGN 7.8)."""

RMS = 2.3
"""RMS_t above which the second moment lags (Wortsman et al. 2023, section 3.4)."""

CLIPPED = 0.9
"""Share of clipped steps from which the clip sets the length of every update."""

SKIPPED = 0.05
"""Share of skipped steps after start-up that is no longer a search for the loss scale."""

OSCILLATES = 0.04
"""Noise from point to point, relative to the level, that people see as oscillation."""

RESUME_Z = 6.0
"""z of a jump at a resume (DESIGN G1; a t value of 6 with 20 neighbours comes once in 70,000)."""

LIKELY = 0.8
"""Probability from which a cause is called likely."""

POSSIBLE = 0.3
"""Probability below which a cause is not named."""
