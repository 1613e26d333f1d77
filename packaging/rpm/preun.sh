if [ "$1" -eq 0 ] && [ -d /run/strake-root/usr ] && [ ! -e /run/strake-remove ]; then
    echo "strake: the root file system of this machine is on an array: without Strake it does not boot." >&2
    echo "strake: move it to another device first. To remove Strake as it is: touch /run/strake-remove" >&2
    exit 1
fi
# The last version goes. An array in use is served until the machine stops.
if [ "$1" -eq 0 ] && [ -x /usr/bin/systemctl ]; then
    if [ -d /run/systemd/system ] && systemctl --quiet is-active strake.service; then
        if strake stop --all; then
            systemctl stop strake.service || :
        else
            echo "strake: an array is in use; the daemon serves on until the machine stops" >&2
        fi
    fi
    systemctl --no-reload disable strake.service || :
fi
