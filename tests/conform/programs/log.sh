# Output of tasks that nobody collects is written to the log, line by line.
#@ fresh
cat > sayer <<'S'
#!/bin/sh
echo "first line"
echo "to stderr" >&2
printf 'no end'
S
chmod +x sayer
(echo "spawn sayer"; sleep 0.5) | pvm > /dev/null
grep -h -E ' \[t4' "$PVM_TMP"/pvml.*
