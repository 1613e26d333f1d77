# The last version goes. An array in use is served until the machine stops.
if [ "$1" -eq 0 ] && [ -d /run/systemd/system ]; then
    if ! systemctl --quiet is-active strake.service || strake stop --all; then
        systemctl --no-reload disable --now strake.service || :
    else
        systemctl --no-reload disable strake.service || :
        echo "strake: an array is in use; the daemon serves on until the machine stops" >&2
    fi
fi
