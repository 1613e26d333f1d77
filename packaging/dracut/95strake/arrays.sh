#!/bin/sh
# What there is to know of arrays where the root file system was not found.
/usr/lib/strake/root-daemon arrays 2>&1
