#!/usr/bin/env bash
#
#   ./launch.sh                            install into .venv if needed, then run the main job (python -m runner)
#   ./launch.sh +exp=quickstart seed=1     the same with overrides; everything after the script's name is passed on
#   ./launch.sh test [pytest arguments]    install the dev extra too, then run the fast tests
#   NPROC=2 ./launch.sh ...                one run on two processes (NUM_PROCESSES=2 means the same)
#
# Works from any folder; the run itself happens in the folder of this script, where conf/ and data/ lie.
# pip's own settings (PIP_INDEX_URL, proxies, pip.conf) are honoured. The status is that of the command it starts.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"
venv=.venv
python=$venv/bin/python

say() { printf 'launch.sh: %s\n' "$*" >&2; }

find_python() {
    local name
    for name in python3 python3.13 python3.12 python3.11 python3.14 python; do
        # Run it: a version manager puts names on PATH that are not installed.
        if "$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            command -v "$name"
            return
        fi
    done
    say "no Python 3.11 or newer with the modules venv and ensurepip was found (tried python3, python3.11 to 3.14)."
    say "Install one, for example: apt-get install python3.11 python3.11-venv"
    return 1
}

# .venv/.made_by_launch: this script may delete the folder. .venv/.unfinished: something is being written to it.
make_venv() {
    local base
    if [[ -e $venv/.unfinished && -e $venv/.made_by_launch ]]; then
        say "the last installation was interrupted: starting it afresh"
        rm -rf "$venv"
    fi
    if "$python" -m pip --version >/dev/null 2>&1; then
        return
    fi
    if [[ -e $venv && ! -e $venv/.made_by_launch ]]; then
        say "$venv exists, was not made by this script, and has no working Python with pip: move it away, then run again"
        return 1
    fi
    base=$(find_python)
    say "making $venv with $("$base" --version 2>&1)"
    rm -rf "$venv"
    mkdir "$venv"
    touch "$venv/.made_by_launch" "$venv/.unfinished"
    "$base" -m venv "$venv"
}

has_gpu() { command -v nvidia-smi >/dev/null 2>&1 && [[ $(nvidia-smi -L 2>/dev/null) == *GPU* ]]; }

# Progress bars for a person, silence for a log file.
pip_install() {
    if [[ -t 1 ]]; then
        "$python" -m pip install "$@"
    else
        "$python" -m pip install --quiet "$@"
    fi
}

install_torch() {
    if "$python" -c 'import importlib.metadata as m; m.version("torch")' >/dev/null 2>&1; then
        return
    fi
    if has_gpu; then
        say "NVIDIA GPU found: installing torch"
        pip_install torch
        return
    fi
    say "no NVIDIA GPU: installing a CPU torch (some hundred MB)"
    if ! pip_install torch==2.13.0; then
        say "torch 2.13.0 is not to be had for this Python and machine: installing the newest torch instead"
        pip_install torch
    fi
}

install_runner() {
    local extra=$1
    say "installing runner${extra:+ with the extra $extra} and what it needs"
    # torch has its own step: with a GPU it need not be the tested release.
    grep -v '^torch==' constraints.txt >"$venv/constraints.txt"
    if ! pip_install -c "$venv/constraints.txt" -e ".${extra:+[$extra]}"; then
        say "the tested releases (constraints.txt) do not install here: trying the newest ones"
        pip_install -e ".${extra:+[$extra]}"
    fi
}

# install EXTRA: once per state of pyproject.toml, constraints.txt, this folder and the Python of the venv.
install() {
    local extra=$1 stamp=$venv/.installed${1:+_$1} key
    make_venv
    key="$(cat pyproject.toml constraints.txt | cksum) $PWD $("$python" --version 2>&1)"
    if [[ -f $stamp && $(<"$stamp") == "$key" ]]; then
        return
    fi
    touch "$venv/.unfinished"
    # pip answers Ctrl-C with an ordinary failure, which must not look like a refused package.
    trap 'exit 130' INT
    trap 'exit 143' TERM
    if ! { install_torch && install_runner "$extra"; }; then
        # A refused package leaves a sound venv; only an interruption leaves the marker, and the next run starts afresh.
        rm -f "$venv/.unfinished"
        say "the installation failed: see pip's message above; the next run tries again"
        exit 1
    fi
    trap - INT TERM
    printf '%s\n' "$key" >"$venv/.installed"
    printf '%s\n' "$key" >"$stamp"
    rm -f "$venv/.unfinished"
}

if [[ ${1:-} == test ]]; then
    shift
    install dev
    exec "$python" -m pytest "$@"
fi

nproc=${NPROC:-${NUM_PROCESSES:-1}}
if ! [[ $nproc =~ ^[1-9][0-9]*$ ]]; then
    say "NPROC=$nproc is not a number of processes: set 1 or more"
    exit 2
fi
if ((nproc > 1)); then
    for argument in "$@"; do
        if [[ $argument == -m || $argument == --multirun ]]; then
            say "a sweep (-m) starts a process for each trial: run it without NPROC"
            exit 2
        fi
    done
fi

install ""

if ((nproc == 1)); then
    exec "$python" -m runner "$@"
fi
# torchrun: on a machine without GPUs `accelerate launch --num_processes 2` silently starts one process.
cores=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo "$nproc")
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$((cores / nproc > 0 ? cores / nproc : 1))}"
exec "$python" -m torch.distributed.run --standalone --nproc_per_node "$nproc" -m runner "$@"
