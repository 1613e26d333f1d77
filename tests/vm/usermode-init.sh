#!/bin/bash
# The first process of a user-mode guest: lays out its file systems, runs the script that the host asks for, and
# powers off. The root is the host's own file tree, read-only.

export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb
SHARE=${0%/*}
mount -t proc none /proc
mount -t sysfs none /sys
mount -t configfs none /sys/kernel/config
mountpoint -q /dev || mount -t devtmpfs none /dev
ln -sf /proc/self/fd /dev/fd
for dir in /run /tmp /var/tmp /dev/shm; do
    mkdir -p "$dir" 2>/dev/null
    mount -t tmpfs none "$dir"
done
# The folder of all shares: what must outlive a boot lies beside this boot's own.
mkdir -p "${SHARE%/*}" 2>/dev/null
mount -t hostfs -o "${SHARE%/*}" none "${SHARE%/*}"
cd "$SHARE" || exec busybox poweroff -f
bash -c "$(cat "$SHARE/script")" </dev/null >/dev/tty1 2>&1
sync
exec busybox poweroff -f
