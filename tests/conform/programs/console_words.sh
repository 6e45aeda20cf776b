# Words with a dash before the program that spawn of the console does not know mean nothing.
#@ fresh
cat > here <<'S'
#!/bin/sh
exit 0
S
chmod +x here
(
    for word in -%x -% -= -+2 -_x -a=b '-!' -2x -/tmp -, '- -2' --2 -x%y '-[1]' '-é' '-&'; do
        echo "echo $word"
        echo "spawn $word here"
    done
    sleep 0.3
    echo reset
) | pvm
