# Tasks that the console has spawned have no parent, since it spawns them with PvmNoSpawnParent.
#@ fresh
#@ unordered
(echo "spawn -> who_am_i"; sleep 0.6) | pvm | sed -E 's/pvm> //g; s/^(\[[0-9]+\]) ?$/\1/; /^(\[[0-9]+\]|)$/d; s/^(\[[0-9]+\]) spawn/spawn/'
