#!/usr/bin/env bash
# `tsbench servers install`: gets servers from package registries only, and prints one line for each: name, version, path.
# What is there already is used again. What this machine lacks a tool for is left out with a line that says so. Exits
# non-zero when one cannot be had that was named, or that the tools are there for, and when there is none at all at the end.
#
#   get-servers.sh                           all of them
#   get-servers.sh influxd-1.8 influxd-2     these
#
# Programs, and the directories documentdb, timescaledb, mysql-9 and questdb, are put into $TSBENCH_SERVERS/bin (default
# ~/.cache/tsbench-servers/bin), where tsbench looks for them, and where TSBENCH_SERVERS is not set, on PATH. Needs apt-get
# (and no root), Go, for influxd-2 cargo with a C compiler, and for questdb Maven and Java 17.
set -euo pipefail

CACHE=${TSBENCH_SERVERS:-$HOME/.cache/tsbench-servers}
BIN=$CACHE/bin
WORK=$CACHE/build
mkdir -p "$BIN" "$WORK"

say() { echo "servers: $*" >&2; }

# InfluxDB 1.6.7: Debian's package, unpacked and not installed: its service would start with the machine.
get_influxd_1_6() {
    local place=$WORK/influxd-1.6
    rm -rf "$place" && mkdir -p "$place"
    (cd "$place" && { apt-get -qq download influxdb || { apt-get -qq update && apt-get -qq download influxdb; }; }) >&2
    dpkg-deb -x "$place"/influxdb_*.deb "$place"
    install -m 755 "$place/usr/bin/influxd" "$BIN/influxd-1.6"
    rm -rf "$place"
}

get_influxd_1_8() {
    GOBIN=$WORK go install -ldflags "-X main.version=1.8.10" github.com/influxdata/influxdb/cmd/influxd@v1.8.10 >&2
    mv "$WORK/influxd" "$BIN/influxd-1.8"
}

# InfluxDB 2.7.12: its go.mod has a replace, which `go install` refuses; so it is built from a module of ours that has the
# same requirements. Its Flux part is Rust, which Go finds through a pkg-config of its own. Warnings that newer compilers
# have are errors by default there: the feature that says so is left out.
get_influxd_2() {
    local version=v2.7.12 place=$WORK/influxd-2 source
    rm -rf "$place" && mkdir -p "$place"
    source=$(cd "$place" && go mod download -json "github.com/influxdata/influxdb/v2@$version" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
    GOBIN=$place go install github.com/influxdata/pkg-config@v0.3.0 >&2
    cat >"$place/cargo" <<'WRAPPER'
#!/bin/sh
exec "$REAL_CARGO" "$@" -p flux --no-default-features --features cffi
WRAPPER
    chmod +x "$place/cargo"
    {
        echo "module tsbench.local/influxd2"
        sed -e '/^module /d' "$source/go.mod"
        echo "require github.com/influxdata/influxdb/v2 $version"
    } >"$place/go.mod"
    printf 'package main\n\nimport _ "github.com/influxdata/influxdb/v2/cmd/influxd"\n\nfunc main() {}\n' >"$place/main.go"
    (
        cd "$place"
        REAL_CARGO=$(rustup which cargo 2>/dev/null || command -v cargo)
        # Its sources name a toolchain that need not be installed; the one in use builds them too.
        RUSTUP_TOOLCHAIN=$(rustup show active-toolchain 2>/dev/null | cut -d" " -f1)
        export PKG_CONFIG=$place/pkg-config CARGO=$place/cargo REAL_CARGO RUSTUP_TOOLCHAIN
        go mod tidy -e >&2
        go build -ldflags "-X main.version=$version" -o influxd2 github.com/influxdata/influxdb/v2/cmd/influxd >&2
    )
    mv "$place/influxd2" "$BIN/influxd-2"
    chmod -R u+w "$place" && rm -rf "$place"
}

# FerretDB, which speaks MongoDB's protocol and keeps its data in DocumentDB.
get_ferretdb() {
    GOBIN=$WORK go install github.com/FerretDB/FerretDB/v2/cmd/ferretdb@v2.7.0 >&2
    mv "$WORK/ferretdb" "$BIN/ferretdb"
}

sid="documentdb timescaledb mysql-9 victoria-metrics vmagent"
# Packages of Debian's unstable suite: downloaded by apt-get with directories of its own, unpacked and not installed. Of these
# packages a server's tree keeps what it needs, in a directory that can be copied: its programs look for their libraries
# beside themselves, and for the C library's loader as `ld.so` in the directory where they are started. That suite changes every
# day, so what was got once is kept: TSBENCH_NEWEST=1 gets it anew, and keeps the old one if that fails.
mirror_of_debian() { apt-get indextargets --format '$(REPO_URI)' | sort -u | { grep '/debian/*$' || true; } | sed -n 1p; }

unpack_sid() { # PLACE PACKAGE...: the packages and what they need in PLACE/root, patchelf in PLACE/patchelf
    local place=$1 mirror name file
    shift
    mirror=$(mirror_of_debian)
    chmod -Rf u+w "$place" || true
    rm -rf "$place"
    mkdir -p "$place"/etc/apt/{apt.conf.d,preferences.d,sources.list.d,trusted.gpg.d} "$place"/state/lists/partial \
        "$place"/cache/archives/partial "$place"/root "$place"/patchelf
    (cd "$place/patchelf" && { apt-get -qq download patchelf || { apt-get -qq update && apt-get -qq download patchelf; }; }) >&2
    dpkg-deb -x "$place"/patchelf/*.deb "$place/patchelf"
    : >"$place/status"
    {
        printf 'Dir "%s";\n' "$place"
        for name in Etc:etc/apt State:state State::status:status Cache:cache Log:.; do
            printf 'Dir::%s "%s/%s";\n' "${name%:*}" "$place" "${name##*:}"
        done
        printf '%s;\n' 'APT::Install-Recommends "false"' 'APT::Sandbox::User ""' 'Acquire::Languages "none"' \
            'Acquire::Check-Valid-Until "false"'
    } >"$place/apt.conf"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror sid main" >"$place/etc/apt/sources.list"
    APT_CONFIG=$place/apt.conf apt-get -qq update >&2
    APT_CONFIG=$place/apt.conf apt-get -qq -y --download-only install "$@" >&2
    for file in "$place"/cache/archives/*.deb; do dpkg-deb -x "$file" "$place/root"; done
}

add_libraries() { # PLACE TREE OWN FILE...: into TREE/lib the loader, and what the files need beside TREE/OWN, their own libraries
    local place=$1 tree=$2 own=$3 loader libraries file
    shift 3
    loader=$(echo "$place"/root/usr/lib/*-linux-gnu/ld-linux-*.so.?)
    libraries=$(dirname "$loader")
    for file in "$@"; do
        "$loader" --library-path "$libraries:$libraries/blas:$libraries/lapack:$place/root/$own" --list "$file"
    done | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | { grep -v "/$own/" || true; } | sort -u | xargs -I {} cp -L {} "$tree/lib/"
    cp -L "$loader" "$tree/lib/ld.so"
}

find_libraries() { # PLACE SEARCH PROGRAM...: the programs look for the loader where they are started, for libraries in SEARCH
    "$1/patchelf/usr/bin/patchelf" --set-interpreter ld.so --force-rpath --set-rpath "$2" "${@:3}"
}

# PostgreSQL 18 with libraries of extensions, in PLACE.new; the extensions' other files are left to the caller.
build_postgres_18() { # PLACE PACKAGE LIBRARY...
    local place=$1 package=$2 tree=$1.new name
    local home=usr/lib/postgresql/18 share=usr/share/postgresql/18
    shift 2
    unpack_sid "$place" "$package"
    rm -rf "$tree"
    mkdir -p "$tree"/{lib,$home/bin,$home/lib,$share/extension}
    cp "$place/root/$home"/bin/{initdb,postgres} "$tree/$home/bin/"
    for name in plpgsql dict_snowball "$@"; do
        cp "$place/root/$home/lib/"$name.so "$tree/$home/lib/"
    done
    add_libraries "$place" "$tree" "$home/lib" "$tree/$home"/*/*
    cp -r "$place/root/$share"/{*.sql,*.bki,*.sample,*.txt,timezonesets,tsearch_data} "$tree/$share/"
    cp "$place/root/$share"/extension/plpgsql* "$tree/$share/extension/"
    find_libraries "$place" "\$ORIGIN/../../../../../lib:\$ORIGIN/../lib" "$tree/$home"/bin/*
    "$place/patchelf/usr/bin/patchelf" --remove-rpath "$tree/$home"/lib/*
    (cd "$tree/lib" && "../$home/bin/postgres" --version >&2) # its libraries are all there
}

put_in_place() { # NAME CONTROL: the tree of `build_postgres_18`, whose version is that of its extension
    sed -n "s/^default_version *= *'\(.*\)'/\1/p" "$WORK/$1.new/usr/share/postgresql/18/extension/$2.control" >"$WORK/$1.new/version"
    test -s "$WORK/$1.new/version"
    rm -rf "${BIN:?}/$1"
    mv "$WORK/$1.new" "$BIN/$1"
    rm -rf "${WORK:?}/$1"
}

# DocumentDB, an extension of PostgreSQL 18.
get_documentdb() {
    local from=$WORK/documentdb/root/usr/share/postgresql/18/extension to=$WORK/documentdb.new/usr/share/postgresql/18/extension
    build_postgres_18 "$WORK/documentdb" postgresql-18-documentdb pg_documentdb_core pg_documentdb \
        pg_documentdb_extended_rum_core_builtin_rmgr pg_documentdb_extended_rum_core pg_documentdb_extended_rum pg_cron \
        tsm_system_rows vector rum postgis-3
    cp "$from"/{documentdb,pg_cron,tsm_system_rows,vector,rum}* "$to/"
    cp "$from/postgis-3.control" "$to/postgis.control"
    cp "$from"/postgis--[0-9].*.sql "$to/"
    put_in_place documentdb documentdb
}

# TimescaleDB, an extension of PostgreSQL 18. Debian builds the part under the Apache licence only: no compression.
get_timescaledb() {
    build_postgres_18 "$WORK/timescaledb" postgresql-18-timescaledb "timescaledb*"
    local to=$WORK/timescaledb.new/usr/share/postgresql/18/extension
    cp "$WORK"/timescaledb/root/usr/share/postgresql/18/extension/timescaledb* "$to/"
    rm "$to"/timescaledb--*--*.sql # updates of older versions
    put_in_place timescaledb timescaledb
}

# MySQL 9, which Debian's stable suites lack.
get_mysql_9() {
    local place=$WORK/mysql-9 tree=$WORK/mysql-9.new
    unpack_sid "$place" mysql-server-core
    rm -rf "$tree"
    mkdir -p "$tree"/{lib,usr/sbin,usr/share/mysql}
    cp "$place/root/usr/sbin/mysqld" "$tree/usr/sbin/"
    add_libraries "$place" "$tree" usr/lib/mysql "$tree/usr/sbin/mysqld"
    cp -r "$place/root/usr/share/mysql"/{charsets,english} "$tree/usr/share/mysql/"
    find_libraries "$place" "\$ORIGIN/../../lib" "$tree/usr/sbin/mysqld"
    (cd "$tree/lib" && ../usr/sbin/mysqld --no-defaults --version) | sed -n 's/.* Ver \([^ ]*\).*/\1/p' >"$tree/version"
    test -s "$tree/version"
    rm -rf "$BIN/mysql-9"
    mv "$tree" "$BIN/mysql-9"
    rm -rf "$place"
}

# VictoriaMetrics, and vmagent, which spreads points over several of it: programs of Go, which need no libraries beside them.
get_program_of_victoria_metrics() { # PROGRAM
    local place=$WORK/$1
    unpack_sid "$place" victoria-metrics
    install -m 755 "$place/root/usr/bin/$1" "$BIN/$1"
    chmod -Rf u+w "$place" || true
    rm -rf "$place"
}

get_victoria_metrics() { get_program_of_victoria_metrics victoria-metrics; }

get_vmagent() { get_program_of_victoria_metrics vmagent; }

# QuestDB: one jar, for a Java runtime that the machine has, in a directory with its version.
get_questdb() {
    local version=9.3.4 tree=$WORK/questdb.new
    mvn -q -B -Dstyle.color=never dependency:get -Dartifact=org.questdb:questdb:$version -Dtransitive=false >&2
    rm -rf "$tree"
    mkdir -p "$tree"
    mvn -q -B -Dstyle.color=never dependency:copy -Dartifact=org.questdb:questdb:$version -DoutputDirectory="$tree" -Dmdep.stripVersion=true >&2
    test -s "$tree/questdb.jar"
    echo "$version" >"$tree/version"
    rm -rf "${BIN:?}/questdb"
    mv "$tree" "$BIN/questdb"
}

# Not a server, and only when it is named: what tests/benchmarks/bench_http.py compares with. Needs root if it is missing.
get_wrk() {
    command -v wrk >/dev/null || apt-get -qq install -y wrk >&2
    ln -sf "$(command -v wrk)" "$BIN/wrk"
}

version_of() {
    case $1 in
        wrk) "$BIN/wrk" -v 2>/dev/null | sed -n 's/^wrk \([^ ]*\).*/\1/p' ;;
        influxd-1.*) "$BIN/$1" version 2>/dev/null | sed -n 's/^InfluxDB v\?\([^ ]*\).*/\1/p' ;;
        influxd-2) "$BIN/$1" version 2>/dev/null | sed -n 's/^InfluxDB v\?\([^ ]*\).*/\1/p' ;;
        victoria-metrics) "$BIN/victoria-metrics" -version 2>/dev/null | sed -n 's/^victoria-metrics-\([0-9.]*\).*/\1/p' ;;
        ferretdb) "$BIN/$1" --version 2>/dev/null | sed -n 's/^version: v\?\(.*\)/\1/p' ;;
        documentdb | timescaledb | mysql-9 | questdb) cat "$BIN/$1/version" ;;
    esac
}

# The tools without which a server cannot be got here, "" if nothing lacks.
lacks() {
    local tool tools=""
    case $1 in
        influxd-1.6) tools="apt-get dpkg-deb" ;;
        influxd-1.8 | ferretdb) tools="go" ;;
        influxd-2) tools="go cargo cc" ;;
        questdb) tools="java mvn" ;;
        documentdb | timescaledb | mysql-9 | victoria-metrics | vmagent) tools="apt-get dpkg-deb" ;;
    esac
    for tool in $tools; do
        if ! command -v "$tool" >/dev/null; then echo "$tool"; fi
    done
    if [[ " $sid " == *" $1 "* ]] && { [[ ! -e /etc/debian_version ]] ||
        { command -v apt-get >/dev/null && [[ -z $(mirror_of_debian) ]]; }; }; then
        echo "Debian's packages"
    fi
}

get() { # NAME: gets it, says what it does, and fails if it cannot be had
    local name=$1 function
    function=get_$(tr '.-' '__' <<<"$name")
    if [[ ! -x $BIN/$name || ( -n ${TSBENCH_NEWEST:-} && " $sid " == *" $name "* ) ]]; then
        say "getting $name"
        # In a process of its own: bash ignores `set -e` in what an `if` or `||` tests.
        bash -c "set -euo pipefail; $(declare -f); BIN=${BIN@Q} WORK=${WORK@Q}; $function" || true
    fi
    if [[ ! -x $BIN/$name ]]; then
        say "$name cannot be had"
        return 1
    fi
    echo "$name $(version_of "$name") $BIN/$name"
}

all="influxd-1.6 influxd-1.8 influxd-2 ferretdb questdb $sid"
missing=0
had=0
for name in ${@:-$all}; do
    if ! declare -F "get_$(tr '.-' '__' <<<"$name")" >/dev/null; then
        say "no server is called $name"
        missing=1
    elif [[ ! -x $BIN/$name && -n $(lacks "$name") ]]; then
        say "$name is left out: this machine lacks $(lacks "$name" | paste -sd , | sed 's/,/, /g')"
        if [[ $# -gt 0 ]]; then missing=1; fi
    else
        if get "$name"; then had=1; else missing=1; fi
    fi
done
if [[ $# -eq 0 && $had -eq 0 ]]; then
    say "none could be installed: each line above names what this machine lacks"
    missing=1
fi
exit $missing
