if [ "$1" -eq 1 ] && [ -x /usr/bin/systemctl ]; then
    systemctl --no-reload preset strake.service || :
fi
if [ -d /run/systemd/system ]; then
    systemd-tmpfiles --create strake.conf || :
    udevadm control --reload || :
    # Where the root file system is on an array, the daemon runs from a copy in memory.
    /usr/lib/strake/root-daemon refresh || :
    systemctl daemon-reload || :
fi
# The initramfs has the program: an older one may not know what a newer one writes.
if [ -d /run/strake-root/usr ] && command -v dracut >/dev/null; then
    dracut --force --regenerate-all || :
fi
