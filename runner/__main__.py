"""The verbs. `python -m runner` trains; everything heavy is imported only once there is something to train."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from runner.errors import UserError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return the process status: 2 for a user's mistake, 130 for Ctrl-C."""
    given = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(given)
    except UserError as error:
        if os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `python -m runner --cfg job | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _dispatch(given: list[str]) -> int:
    from runner import __version__
    from runner.config.help import NOT_YET, VERBS, group_page, page
    from runner.config.names import nearest

    verb = given[0] if given and given[0].replace("_", "").isalpha() else "train"
    rest = given[1:] if given and given[0] == verb else given
    if verb in NOT_YET:
        raise UserError(f"python -m runner {verb}: not yet; there are {', '.join(VERBS)}")
    if verb not in VERBS:
        near = nearest(verb, [*VERBS, *NOT_YET], 0.6)
        raise UserError(
            f"there is no verb {verb!r}"
            + (f"; did you mean {near}?" if near else ".")
            + f" There are {', '.join(VERBS)}"
        )
    if "--version" in rest:
        print(f"runner {__version__}")
        return 0
    if verb in ("diagnose", "report"):
        from runner.diagnosis import main as diagnosis

        return diagnosis.diagnose(rest) if verb == "diagnose" else diagnosis.report(rest)
    if verb == "replay":
        from runner.lab.replay import main as replay

        return replay(rest)
    if verb == "help" or any(a in ("--help", "-h") for a in rest):
        topics = [a for a in rest if not a.startswith("-") and "=" not in a]
        print(group_page(topics[0].lstrip("+")) if topics else page())
        return 0
    args = _parse(rest)
    return _check(args) if verb == "check" else _train(args)


def _parse(rest: list[str]) -> argparse.Namespace:
    """Hydra's own options, and overrides in any order between them."""
    from hydra._internal.utils import get_args_parser

    def refuse(message: str) -> None:
        raise UserError(f"{message}; python -m runner --help, and --hydra-help for Hydra's options")

    parser = get_args_parser()
    parser.error = refuse  # type: ignore[method-assign, assignment]
    return parser.parse_intermixed_args(rest)


def _where(args: argparse.Namespace) -> Any:
    from runner.config.layers import Where

    return Where(args.config_dir, args.config_path, args.config_name or "config")


def _is_multirun(args: argparse.Namespace) -> bool:
    return bool(args.multirun) or any(o.lstrip("+").upper() == "HYDRA.MODE=MULTIRUN" for o in args.overrides)


def _check(args: argparse.Namespace) -> int:
    """The checks of preflight; with --cfg every key, its value and where it was set."""
    from runner.config.compose import Session
    from runner.config.show import table
    from runner.config.sweeps import check_sweep

    session = Session(_where(args))
    if _is_multirun(args):
        sweep = check_sweep(session, args.overrides, files=True)
        print(f"ok: {sweep.trials or 'an open number of'} trials compose (only that: each checks itself as it starts)")
        return 0
    if args.cfg:
        print(table(session.load(args.overrides, files=True)))
        return 0
    from runner.errors import ConfigError
    from runner.preflight.main import check

    try:
        loaded = session.load(args.overrides, files=True, findings=True)
    except ConfigError:
        # Where only files or packages are missing, the settings can be looked at all the same.
        loaded = session.load(args.overrides, findings=True)
        check(loaded.config, args.overrides, loaded.dropped, until="config")
        raise
    return check(loaded.config, args.overrides, loaded.dropped)


def _train(args: argparse.Namespace) -> int:
    """Check everything, then let Hydra compose and run; one process status for one run or a whole sweep."""
    if args.hydra_help or args.shell_completion or args.experimental_rerun:
        return _hydra(args, args.overrides, [])
    from runner.config.compose import Session
    from runner.config.sweeps import check_sweep
    from runner.errors import ConfigError

    session = Session(_where(args))
    if _is_multirun(args):
        sweep = check_sweep(session, args.overrides, files=True)
        return _run_sweep(lambda: _hydra(args, sweep.overrides, []))
    only_shown = bool(args.cfg or args.info)
    loaded = session.load(args.overrides, files=not only_shown)
    if loaded.sweep and not only_shown:
        keys = ", ".join(loaded.sweep)
        raise ConfigError([f"+sweep sweeps over {keys}: add -m (python -m runner -m {' '.join(args.overrides)})"])
    overrides = list(loaded.overrides)
    if not only_shown and loaded.config.checkpoint.resume is not None:
        overrides += _same_folder(loaded.config)
    return _hydra(args, overrides, loaded.dropped)


def _same_folder(config: Any) -> list[str]:
    """A resumed run goes on in its own folder; Hydra is told before it makes another one."""
    import dataclasses

    from runner.config.quote import quote
    from runner.runfolder import resolve_resume

    found = resolve_resume(config.checkpoint.resume, Path(config.output_dir).parent, dataclasses.asdict(config))
    return [] if found is None else [quote(f"output_dir={found[0]}")]


def _hydra(args: argparse.Namespace, overrides: list[str], dropped: list[str]) -> int:
    from runner.config.launch import Doors, run_hydra

    return run_hydra(args, overrides, dropped, _where(args), Doors(_run, _run_trial))


def _run(config: Any, dropped: list[str]) -> Any:
    from runner.run import run

    return run(config, dropped)


def _run_trial(config: Any, folder: Path) -> float | None:
    from runner.sweep.trial import run_trial

    return run_trial(config, folder)


def _run_sweep(multirun: Callable[[], int]) -> int:
    from runner.sweep.table import run_sweep

    return run_sweep(multirun)


if __name__ == "__main__":
    sys.exit(main())
