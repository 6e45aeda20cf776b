# timing: round trips and bandwidth along the direct route; the script removes the measured numbers.
#@ runs timing_slave
#@ needs $DEBIAN_PVM/bin/timing
#@ fresh
$DEBIAN_PVM/bin/timing | sed -E 's/^[ 0-9.]+$/numbers/; s/(RTT Avg uSec) [0-9]+/\1/'
