#!/bin/sh
# Stand-in for srun in docs.t: one step of one process, here.
while [ $# -gt 0 ]; do
    case $1 in
    --*) shift ;;
    *) break ;;
    esac
done
exec "$@"
