#!/bin/bash
# Takes Strake into the initramfs where the root file system lies on an array.
# shellcheck disable=SC2154 # initdir, moddir, systemdsystemunitdir and hostonly are dracut's

check() {
    require_binaries /usr/bin/strake chroot || return 1
    # 255: only where another module or the configuration asks for it.
    local place devices
    for place in / /usr; do
        devices=$(lsblk -n -s -o NAME "$(findmnt -n -v -o SOURCE --target $place)" 2>/dev/null)
        [[ $devices == *ublkb* ]] && return 0
    done
    return 255
}

depends() {
    echo systemd systemd-initrd
}

installkernel() {
    hostonly='' instmods ublk_drv nvme
}

install() {
    local file
    inst_multiple /usr/bin/strake /bin/sh chroot cp mv ln rm mkdir mount sed cat sleep readlink tail
    inst /usr/lib/strake/root-daemon
    inst /usr/lib/systemd/system/strake.service
    inst_rules 62-strake.rules
    mkdir -p "$initdir/usr/lib/strake"
    /usr/lib/strake/root-daemon files >"$initdir/usr/lib/strake/root-files"
    while read -r file; do
        inst_simple "$file"
    done <"$initdir/usr/lib/strake/root-files"
    /usr/lib/strake/root-daemon state "$initdir"
    inst_hook emergency 50 "$moddir/arrays.sh"
    inst_simple "$moddir/strake-initrd.service" "$systemdsystemunitdir/strake-initrd.service"
    $SYSTEMCTL -q --root "$initdir" add-wants sysinit.target strake-initrd.service
}
