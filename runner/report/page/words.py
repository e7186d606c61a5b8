"""Words of the page that do not come from the verdict."""

from __future__ import annotations

from runner.text import Text, same

ACTIONS = {
    "keep": Text("KEEP", "继续"),
    "change_next_run": Text("CHANGE", "修改"),
    "stop": Text("STOP", "停止"),
}

STABILITY = {
    "normal": Text("normal", "正常"),
    "at_risk": Text("at risk", "有风险"),
    "broken": Text("broken", "已损坏"),
    "cannot_tell": Text("cannot tell", "无法判断"),
}

LEARNING = {
    "yes": Text("yes", "是"),
    "slow": Text("slowly", "偏慢"),
    "no": Text("no", "否"),
    "cannot_tell": Text("cannot tell", "无法判断"),
}

NEXT = {
    "keep": Text("keep the settings", "保持当前设置"),
    "change_next_run": Text("change the next run", "下次训练修改设置"),
    "stop": Text("stop this run", "停止本次训练"),
}

CONFIDENCE = {
    "certain": Text("certain", "确定"),
    "proven": Text("proven", "已证实"),
    "likely": Text("likely", "很可能"),
    "possible": Text("possible", "有可能"),
}

RULES = {
    "certain": Text("a law: nothing else can print this log", "由定律得出：别的原因写不出这样的日志"),
    "proven": Text("a paired rerun on the same batches showed it", "同一批数据的配对重跑已证明"),
    "likely": Text("right in at least 80 % of the runs it was calibrated on", "在校准用的训练中，正确率不低于 80 %"),
    "possible": Text("it fits, and so may something else", "与现象相符，但别的原因也可能"),
}

TONES = {
    "keep": "good", "normal": "good", "yes": "good",
    "change_next_run": "warn", "at_risk": "warn", "slow": "warn",
    "stop": "bad", "broken": "bad", "no": "bad",
}  # fmt: skip
"""Colour of a word; what is not listed is neutral."""

TOOLS = {
    "runner": same("runner"),
    "transformers": same("TrainingArguments"),
    "llamafactory": same("LLaMA-Factory"),
    "ms_swift": same("ms-swift"),
}

KINDS = {
    "run": Text("run folder", "运行目录"),
    "trainer_state": same("trainer_state.json"),
    "trainer_log": same("trainer_log.jsonl"),
    "console": Text("console log", "控制台日志"),
    "tensorboard": Text("TensorBoard events", "TensorBoard 事件文件"),
    "csv": Text("CSV table", "CSV 表格"),
    "records": Text("JSON records", "JSON 记录"),
}

STATES = {
    "running": Text("running", "训练中"),
    "finished": Text("finished", "已完成"),
    "stopped": Text("stopped", "已停止"),
    "diverged": Text("diverged", "已发散"),
    "failed": Text("failed", "失败"),
}

DO = Text("Do this", "请做")
SAW = Text("What the log shows", "看到的现象")
WHY = Text("Why", "原因")
LEARNS = Text("Does it learn?", "在学习吗？")
NOT_IT = Text("It is not", "与此无关")
SEPARATE = Text("What would tell the causes apart", "如何区分这几个原因")
UNKNOWN = Text("What this verdict does not know", "本结论不知道的")
MISSING = Text("Switch on, so that the next verdict can say more", "打开这些，下次的结论会更具体")
CHARTS = Text("Charts", "图表")
NUMBERS = Text("Numbers", "数字")
CONFIG = Text("Configuration", "配置")
CONTROL = Text("Compared with the control run", "与对照训练比较")
READ = Text("What was read", "读取了什么")
