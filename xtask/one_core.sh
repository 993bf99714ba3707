#!/bin/sh
# Runs a test on one core, chosen by the number of nextest's slot: a training of two threads beside another test waits for its own
# second thread most of the time. Whatever opens a browser keeps all cores.
case "$1" in *dashboard*) exec "$@" ;; esac
if [ -n "$NEXTEST_TEST_GLOBAL_SLOT" ]; then
  core=$((NEXTEST_TEST_GLOBAL_SLOT % $(nproc)))
  taskset -c "$core" true 2>/dev/null && exec taskset -c "$core" "$@"
fi
exec "$@"
