if [ "$1" -eq 1 ] && [ -x /usr/bin/systemctl ]; then
    systemctl --no-reload preset strake.service || :
fi
if [ -d /run/systemd/system ]; then
    systemd-tmpfiles --create strake.conf || :
    udevadm control --reload || :
    systemctl daemon-reload || :
fi
