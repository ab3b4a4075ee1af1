#!/usr/bin/env bash
# Creates the environment that the peers (Stable-Baselines3, its contrib package, SBX) are measured in; does nothing where it is up to date.
# usage: peers.sh FOLDER [PYTHON]
set -euo pipefail
folder=${1:?usage: peers.sh FOLDER [PYTHON]}
python=${2:-python3}
requirements=$(cd "$(dirname "$0")" && pwd)/requirements-peers.txt
stamp=$folder/.installed

# A whole copy of the pins as stamp: an edited pin means another installation.
if cmp --silent "$requirements" "$stamp"; then exit 0; fi

[ -x "$folder/bin/python" ] || "$python" -m venv "$folder"
printf '*\n' > "$folder/.gitignore"
install() { "$folder/bin/python" -m pip install -qq --no-input --disable-pip-version-check "$@"; }

if install -r "$requirements"; then
    cp "$requirements" "$stamp"
    exit 0
fi

# Pins can fail on another Python or platform. Each package apart, so that one peer is measured where the other fails;
# no stamp, so that the pins are tried again next time.
echo "peers.sh: the pinned versions cannot be installed here; trying the newest ones." >&2
install torch==2.13.0 || echo "peers.sh: no torch 2.13.0; Stable-Baselines3 will choose its own." >&2
install stable-baselines3 gymnasium || echo "peers.sh: stable-baselines3 cannot be installed." >&2
install sb3-contrib || echo "peers.sh: sb3-contrib cannot be installed." >&2
install sbx-rl jax || echo "peers.sh: sbx-rl cannot be installed." >&2
