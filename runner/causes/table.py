"""What each cause predicts for each sign: the whole of the reasoning, to be read by people.

A row gives, for the signs that speak for or against a cause, the probability that a run with that cause shows them.
`USUAL` is the probability in runs without it. Signs that a row leaves out are as likely with the cause as without.
The numbers were set from the failure catalogue and adjusted on simulations and half of the labelled logs; a bench of
planted faults will replace them. What the signs mean is in `runner/diagnosis/signs_*.py`.
"""

from __future__ import annotations

from runner.text import Text

USUAL: dict[str, float] = {
    # Values that are no numbers
    "nan_loss": 0.02,
    "hidden_nan": 0.01,
    "broken_from_start": 0.01,
    "finite_before_nan": 0.02,
    "frozen_norm": 0.002,
    "nan_norm": 0.03,
    "isolated_nan_norm": 0.05,
    "zero_loss_zero_norm": 0.005,
    "zero_norm": 0.005,
    "log_classes_zero_norm": 0.002,
    "outcome_changes": 0.005,
    "eval_nan": 0.01,
    "fp16": 0.3,
    "guard_acted": 0.03,
    "skips_later": 0.03,
    "scale_exhausted": 0.005,
    # Shape of the loss
    "level_rises": 0.03,
    "rise_stays": 0.02,
    "ends_above_start": 0.02,
    "rises_before_nan": 0.01,
    "norm_rises_too": 0.05,
    "norm_explodes": 0.005,
    "spikes": 0.03,
    "bursts": 0.02,
    "norm_spikes": 0.03,
    "noise_grows": 0.03,
    "periodic": 0.02,
    "period_is_epoch": 0.02,
    "period_is_rate": 0.01,
    "period_is_length": 0.005,
    "staircase": 0.08,
    "resume_jump": 0.01,
    "starts_above_uniform": 0.01,
    "oscillates": 0.6,
    # Learning
    "falls": 0.85,
    "flat": 0.06,
    "at_chance": 0.03,
    "eval_rises": 0.08,
    "memorised": 0.04,
    "eval_falls": 0.6,
    # Learning rate
    "rate_hot": 0.08,
    "rate_zero": 0.01,
    "warmup_swallows": 0.02,
    "rate_restarts": 0.03,
    "rate_low": 0.05,
    "schedule_off_plan": 0.005,
    "loss_times_accumulation": 0.005,
    "plateau": 0.2,
    # Run folders
    "kappa_high": 0.05,
    "kappa_fits": 0.6,
    "foreseen": 0.25,
    "not_foreseen": 0.1,
    "replay_rises": 0.03,
    "overshoots": 0.05,
    "lost_updates": 0.03,
    "second_moment_lags": 0.05,
    "clipped_always": 0.1,
    "sources_in_blocks": 0.03,
    "slow_waves": 0.1,
}

PREDICTS: dict[str, dict[str, float]] = {
    "weights.damaged": {
        "hidden_nan": 0.9, "nan_loss": 0.3, "broken_from_start": 0.95, "finite_before_nan": 0.02,
        "outcome_changes": 0.001,
    },
    "kernels.matmul_unwritten": {"hidden_nan": 0.5, "broken_from_start": 0.6, "log_classes_zero_norm": 0.3,
                                 "outcome_changes": 0.3},
    "weights.uninitialised": {"outcome_changes": 0.95, "broken_from_start": 0.6, "log_classes_zero_norm": 0.6},
    "weights.dead_backbone": {"log_classes_zero_norm": 0.95, "falls": 0.01, "outcome_changes": 0.001},
    "engine.overlap_race": {"frozen_norm": 0.95, "hidden_nan": 0.8},
    "log.hidden_nan": {"hidden_nan": 0.99},
    "precision.fp16_overflow": {
        "nan_loss": 0.5, "hidden_nan": 0.5, "nan_norm": 0.7, "fp16": 0.97, "broken_from_start": 0.1,
        "finite_before_nan": 0.5, "skips_later": 0.6, "guard_acted": 0.5,
    },
    "precision.fp16_weights": {"finite_before_nan": 0.5, "hidden_nan": 0.5, "fp16": 0.97},
    "precision.loss_scale_exhausted": {"scale_exhausted": 0.95, "skips_later": 0.9, "fp16": 0.99},
    "precision.isolated_overflow": {"isolated_nan_norm": 0.97, "nan_loss": 0.01, "hidden_nan": 0.01, "falls": 0.9},
    "kernels.attention_backend": {
        "finite_before_nan": 0.5, "hidden_nan": 0.4, "nan_loss": 0.4, "nan_norm": 0.5, "level_rises": 0.05,
    },
    "data.bad_batch": {
        "guard_acted": 0.6, "spikes": 0.6, "bursts": 0.05, "norm_spikes": 0.5, "finite_before_nan": 0.4,
        "nan_loss": 0.3,
        "rise_stays": 0.05, "replay_rises": 0.03,
    },
    "labels.no_supervised_token": {"zero_loss_zero_norm": 0.97, "falls": 0.05},
    "trainability.nothing_trains": {"zero_norm": 0.95, "falls": 0.03},
    "trainability.stale_optimizer": {
        "flat": 0.9, "zero_norm": 0.02, "falls": 0.03, "at_chance": 0.1, "rate_zero": 0.02,
    },
    "trainability.head_frozen": {"at_chance": 0.8, "falls": 0.1, "zero_norm": 0.1, "rate_hot": 0.05},
    "optim.encoder_destroyed": {"at_chance": 0.9, "rate_hot": 0.7, "level_rises": 0.3, "falls": 0.1},
    "optim.learning_rate_too_high": {
        "level_rises": 0.7, "rise_stays": 0.5, "ends_above_start": 0.6, "rises_before_nan": 0.4, "norm_rises_too": 0.6,
        "guard_acted": 0.3, "bursts": 0.25, "spikes": 0.25, "noise_grows": 0.2, "norm_spikes": 0.3,
        "norm_explodes": 0.3, "rate_hot": 0.6, "replay_rises": 0.7, "overshoots": 0.8, "foreseen": 0.1,
        "kappa_high": 0.7, "falls": 0.3, "rate_low": 0.005, "starts_above_uniform": 0.01,
    },
    "optim.second_moment_lag": {"second_moment_lags": 0.95, "spikes": 0.5, "norm_spikes": 0.5},
    "optim.learning_rate_low": {"rate_low": 0.98, "falls": 0.5, "overshoots": 0.01, "replay_rises": 0.05},
    "schedule.rate_zero": {"rate_zero": 0.99, "falls": 0.05},
    "schedule.warmup_beyond_end": {"warmup_swallows": 0.99},
    "schedule.advances_too_fast": {"schedule_off_plan": 0.97},
    "trainer.accumulation_not_divided": {"loss_times_accumulation": 0.9},
    "data.length_grouping": {"period_is_length": 0.95, "periodic": 0.95},
    "learning.plateau": {"plateau": 0.97, "falls": 0.99},
    "schedule.restart_cycle": {"period_is_rate": 0.8, "rate_restarts": 0.95, "periodic": 0.7},
    "precision.lost_updates": {"lost_updates": 0.97, "falls": 0.3},
    "evaluation.not_finite": {"eval_nan": 0.99},
    "data.sampling_noise": {
        "oscillates": 0.99, "level_rises": 0.02, "bursts": 0.01, "noise_grows": 0.02, "kappa_fits": 0.95,
        "foreseen": 0.95, "not_foreseen": 0.02, "replay_rises": 0.01, "overshoots": 0.02, "periodic": 0.01,
        "hidden_nan": 0.001, "nan_loss": 0.001,
    },
    "data.order": {"slow_waves": 0.7, "sources_in_blocks": 0.8, "level_rises": 0.2},
    "data.label_mismatch": {"starts_above_uniform": 0.9, "ends_above_start": 0.01},
    "data.overfit": {"eval_rises": 0.9, "memorised": 0.7, "falls": 0.85, "eval_falls": 0.3},
    "data.epoch_staircase": {"staircase": 0.97, "period_is_epoch": 0.3},
    "clip.saturated": {"clipped_always": 0.97},
    "learning.stuck": {"flat": 0.97, "falls": 0.02, "zero_norm": 0.05, "rate_zero": 0.01, "eval_falls": 0.1},
    "lifecycle.resume_discontinuity": {"resume_jump": 0.95},
    "stability.spikes_recovered": {
        "spikes": 0.5, "norm_spikes": 0.5, "bursts": 0.3, "rise_stays": 0.05, "ends_above_start": 0.002,
    },
    "stability.noise_grows": {"noise_grows": 0.97},
    "stability.periodic": {"periodic": 0.97, "period_is_rate": 0.005, "period_is_length": 0.002},
    "stability.level_jump": {"level_rises": 0.9, "rate_hot": 0.08},
}  # fmt: skip

PRIOR: dict[str, float] = {
    "precision.fp16_overflow": 0.08,
    "kernels.attention_backend": 0.02,
    "data.sampling_noise": 0.5,
    "data.epoch_staircase": 0.1,
    "data.overfit": 0.2,
    "optim.learning_rate_too_high": 0.15,
    "optim.learning_rate_low": 0.1,
    "log.hidden_nan": 0.05,
    "stability.level_jump": 0.04,
    "stability.spikes_recovered": 0.15,
}
"""Share of ill-looking runs that have the cause; `RARE` for those that are not listed."""

RARE = 0.05

LAWS: dict[str, str] = {
    "log.hidden_nan": "hidden_nan",
    "labels.no_supervised_token": "zero_loss_zero_norm",
    "schedule.rate_zero": "rate_zero",
    "evaluation.not_finite": "eval_nan",
    "schedule.warmup_beyond_end": "warmup_swallows",
    "clip.saturated": "clipped_always",
    "precision.loss_scale_exhausted": "scale_exhausted",
}
"""Causes that one sign proves: {cause: sign}. Their confidence is certain."""

NEEDS: dict[str, tuple[str, ...]] = {
    "precision.fp16_overflow": ("guard_acted", "nan_loss", "hidden_nan", "nan_norm", "skips_later"),
    "precision.fp16_weights": ("fp16",),
    "optim.encoder_destroyed": ("at_chance",),
    "optim.learning_rate_too_high": (
        "guard_acted", "level_rises", "ends_above_start", "rises_before_nan", "bursts", "noise_grows", "replay_rises",
        "overshoots", "kappa_high", "norm_explodes",
    ),
    "stability.level_jump": ("level_rises",),
    "data.order": ("slow_waves", "sources_in_blocks"),
    "data.overfit": ("eval_rises", "memorised"),
    "kernels.attention_backend": ("hidden_nan", "nan_loss", "nan_norm"),
    "kernels.matmul_unwritten": ("broken_from_start", "log_classes_zero_norm"),
    "engine.overlap_race": ("frozen_norm",),
    "weights.damaged": ("broken_from_start",),
    "weights.uninitialised": ("outcome_changes",),
    "data.bad_batch": ("guard_acted", "spikes", "bursts", "norm_spikes", "finite_before_nan"),
    "stability.spikes_recovered": ("spikes", "bursts", "norm_spikes"),
    "schedule.restart_cycle": ("period_is_rate",),
    "data.length_grouping": ("period_is_length",),
    "learning.plateau": ("plateau",),
    "optim.second_moment_lag": ("second_moment_lags",),
    "trainability.head_frozen": ("at_chance",),
    "trainability.stale_optimizer": ("flat",),
    "learning.stuck": ("flat",),
    "optim.learning_rate_low": ("rate_low",),
    "data.sampling_noise": ("oscillates",),
}  # fmt: skip
"""Without one of these signs a cause is not considered; the others need a sign that their row makes more likely."""

REST: tuple[str, ...] = ("stability.level_jump", "stability.spikes_recovered", "learning.stuck")
"""Causes that only say what happened: they are left out where another error or warning explains the same sign."""


class Rivals:
    """Causes of which one at most is true, and the experiment that separates them."""

    def __init__(self, causes: tuple[str, ...], en: str, zh: str):
        self.causes = causes
        self.experiment = Text(en, zh)


RIVALS: tuple[Rivals, ...] = (
    Rivals(
        ("weights.damaged", "weights.uninitialised", "weights.dead_backbone", "kernels.matmul_unwritten",
         "precision.fp16_overflow", "precision.fp16_weights", "kernels.attention_backend", "engine.overlap_race",
         "data.bad_batch"),
        "repeat the first broken step once in fp32 with eager attention: still NaN = weights or rows, finite = number "
        "format or kernel",
        "用 fp32 和 eager attention 重跑第一个损坏的步：仍是 NaN = 权重或数据，变为有限 = 精度或算子",
    ),
    Rivals(
        ("optim.learning_rate_too_high", "data.order", "data.bad_batch", "stability.level_jump"),
        "run again with half the learning rate and the same seed: the rise goes = rate, it stays at its step = data",
        "学习率减半、种子不变再跑一次：上升消失 = 学习率，仍在同一步 = 数据",
    ),
    Rivals(
        ("optim.encoder_destroyed", "trainability.head_frozen", "trainability.stale_optimizer", "learning.stuck"),
        "train 20 steps on one single batch at a tenth of the rate: the loss falls = rate was too high, it stays = "
        "head or optimizer does not reach the weights",
        "用十分之一学习率在同一个 batch 上训练 20 步：loss 下降 = 原学习率过高，不动 = 分类头或优化器没有更新到权重",
    ),
)  # fmt: skip
