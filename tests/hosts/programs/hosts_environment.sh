# Tasks on another host have that host's environment, and the variables that PVM_EXPORT names here.
#@ fresh
export FROM_HERE="a value" PVM_EXPORT=FROM_HERE
cat > "$HOSTS_FOLDER/show" << 'END'
#!/bin/sh
echo "host $(hostname) FROM_HERE=$FROM_HERE OTHER=$OTHER"
echo "folder $(pwd) HOME=$HOME PVM_TMP=$PVM_TMP"
echo "arch $PVM_ARCH root $PVM_ROOT export $PVM_EXPORT"
END
chmod +x "$HOSTS_FOLDER/show"
for host in alfa delta; do
    (echo "spawn -> -$host $HOSTS_FOLDER/show"; sleep 0.7) | pvm | sed -E 's/pvm> //g' |
        sed -nE '/\] (host|folder|arch)/!d; s/\bt[0-9a-f]{5,6}\b/TID/; s,(root) [^ ]*,\1 ROOT,; p'
done
