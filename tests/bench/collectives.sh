#!/bin/sh
# Ring all-reduce over bl_world beside plain sockets and OpenMPI, medians of one run:
#     collectives.sh FOLDER    the build folder, after `make tests/bench/collectives`
# As root each runs in a network namespace of its own, so that the bytes on loopback are its own.
set -eu
folder=${1:?usage: collectives.sh BUILD_FOLDER}
here=$(dirname "$0")
bench=$folder/tests/bench/collectives
BALLAST_PLUGIN_PATH=${BALLAST_PLUGIN_PATH:-$folder/plugins/.libs}
OMPI_ALLOW_RUN_AS_ROOT=1
OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
OMPI_MCA_mpi_yield_when_idle=1
export BALLAST_PLUGIN_PATH OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM \
    OMPI_MCA_mpi_yield_when_idle
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

alone() {
    if [ "$(id -u)" = 0 ]; then
        # shellcheck disable=SC2016 # the inner shell's
        timeout 120 unshare -n sh -c 'ip link set lo up && exec "$@"' sh "$@"
    else
        timeout 120 "$@"
    fi
}

with_mpi=no
if command -v mpicc >/dev/null && command -v mpirun >/dev/null; then
    mpicc -O3 -o "$work/collectives_mpi" "$here/collectives_mpi.c"
    with_mpi=yes
fi
for processes in 2 4; do
    alone "$bench" world $processes
    alone "$bench" socket $processes
    [ $with_mpi = no ] || {
        alone mpirun --oversubscribe -n $processes --mca btl tcp,self --mca pml ob1 \
            --mca btl_tcp_if_include lo "$work/collectives_mpi" mpi_tcp
        alone mpirun --oversubscribe -n $processes --mca btl vader,self --mca pml ob1 \
            "$work/collectives_mpi" mpi_shared
    }
done >"$work/lines"

awk '
{ key = $2 " " $3; time[$1, key] = $4; wire[$1, key] = $5
  if (!(key in seen)) { seen[key] = 1; keys[++count] = key } }
function cell(method, key) {
    return (method, key) in time ? sprintf("%12.0f %5.2f", time[method, key],
        time["world", key] / time[method, key]) : sprintf("%12s %5s", "-", "-") }
END {
    print "median in microseconds; after it how many times longer bl_world takes; megabytes on loopback of one run"
    printf "%2s %10s %12s %18s %18s %18s %9s %9s %9s\n", "P", "bytes", "bl_world", "sockets",
        "OpenMPI tcp", "OpenMPI shared", "bl_world", "sockets", "OpenMPI"
    for (i = 1; i <= count; i++) {
        split(keys[i], k, " ")
        printf "%2s %10s %12.0f %s %s %s %9.3f %9.3f %9.3f\n", k[1], k[2],
            time["world", keys[i]], cell("socket", keys[i]), cell("mpi_tcp", keys[i]),
            cell("mpi_shared", keys[i]), wire["world", keys[i]] / 1e6,
            wire["socket", keys[i]] / 1e6, wire["mpi_tcp", keys[i]] / 1e6
    }
}' "$work/lines"
