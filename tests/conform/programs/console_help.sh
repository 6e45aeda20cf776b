# The commands that help lists, without their descriptions, which differ between the consoles. (PVM's help omits
# tickle, and why is new.)
#@ fresh
echo help | pvm | sed -n '/Commands are/,/pvm>/p' | awk '/^  / && $1 != "tickle" && $1 != "why" {print $1}'
printf '%s\n' 'help conf' 'help spawn' 'help nothing' | pvm | grep -o -E '^(conf|spawn) |^Syntax:  (conf|spawn)|not found|->>|--host=' | sort -u
