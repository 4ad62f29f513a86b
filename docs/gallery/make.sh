#!/bin/sh
# Makes the reports of docs/gallery.md anew, one a line below; needs `make venv`, and servers of InfluxDB 1 and FerretDB for the study (tsbench servers install).
# Figures are those of the machine: let it do nothing else.
set -eu
cd "$(dirname "$0")"
here=$PWD
export PATH="$PWD/../../.venv/bin:$PATH"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp ./*.toml "$work"
cd "$work"
python "$here/readings.py"
tsbench check readings.csv --out meters.toml

report() { # NAME SCENARIO [OPTION...]
    name=$1
    shift
    tsbench run "$@" --out "$name" || true # a gate that fails is part of a ramp
    cp "$name"/*/report.html "$here/$name.html"
}
report quickstart quickstart
report own-data own-data.toml
report ramp ramp.toml
report study studies/five-phases --set short=true
