# An upgrade restarts the daemon. Filesystems on arrays stay mounted: their requests wait in the
# kernel until the new daemon takes the block devices over.
if [ "$1" -ge 1 ] && [ -d /run/systemd/system ]; then
    systemctl try-restart strake.service || :
fi
