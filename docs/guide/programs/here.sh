#!/bin/sh
# Takes the place of ssh, for several daemons on one computer: here.sh HOST COMMAND runs the command here.
shift
exec sh -c "$*"
