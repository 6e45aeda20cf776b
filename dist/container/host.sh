#!/bin/sh
# A host of a virtual machine, in a container: lets the user pvm log in by ssh from every other container that has the
# same volume /keys. The first container to start makes the key. Nothing but these containers has it.
set -eu

# Only one of the containers that start at once makes the key; mkdir tells which.
if mkdir /keys/made 2>/dev/null; then
    ssh-keygen -q -t ed25519 -N '' -C hpvm -f /keys/new
    chown pvm:pvm /keys/new /keys/new.pub
    mv /keys/new.pub /keys/id_ed25519.pub
    # Last: whoever sees it sees both.
    mv /keys/new /keys/id_ed25519
fi
tries=0
until [ -e /keys/id_ed25519 ]; do
    tries=$((tries + 1))
    if [ "$tries" -gt 300 ]; then
        echo 'hpvm-host: another container has begun to make the key in /keys, and has not ended: remove the volume' >&2
        exit 1
    fi
    sleep 0.1
done

home=/home/pvm
mkdir -p "$home/.ssh"
cp /keys/id_ed25519 "$home/.ssh/id_ed25519"
cp /keys/id_ed25519.pub "$home/.ssh/authorized_keys"
# The keys of the hosts are new in each container; the network is that of these containers only.
cat >"$home/.ssh/config" <<'EOF'
Host *
    StrictHostKeyChecking accept-new
    LogLevel ERROR
EOF
chmod 700 "$home/.ssh"
chmod 600 "$home/.ssh/id_ed25519" "$home/.ssh/authorized_keys" "$home/.ssh/config"
chown -R pvm:pvm "$home/.ssh"

ssh-keygen -A >/dev/null
exec /usr/sbin/sshd -D -e -o PasswordAuthentication=no -o PermitRootLogin=no
