#!/bin/sh
# `unoptimised.sh COMPILER …`: the compiler, told last of all not to optimise.
exec "$@" -O0
