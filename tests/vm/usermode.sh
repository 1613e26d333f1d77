# Sourced by lib.sh in a user-mode guest: its drives, which are its own business and not the host's.
#
# Drive N is a file of the host behind /dev/ubd?, made the namespace of an NVMe controller of its own by the kernel's
# loop transport: with a serial number, a name like that of any NVMe drive, and gone when its controller is removed.
# A drive that loses its cache has a loop device in between, whose writes go to the page cache: a cut of the power
# takes what was not flushed and was not written back by chance.

# What lies below has no name in /dev, lest it is found there as a second path to the drive.

NVMET=/sys/kernel/config/nvmet
BELOW=$RUN/below
LETTERS=abcdefghijklmnop
# No udev runs here: device-mapper makes its names itself.
export DM_DISABLE_UDEV=1

# All is built in.
modprobe() { :; }

# What drive N lies on: the file of the host, or a loop device over that.
below() {
    local file=$BELOW/ubd$1
    if [ "$UBD_LOSES_CACHE" = 1 ] || [ "$UBD_BLOCK_BYTES" != 512 ]; then
        echo "$BELOW/loop$1"
    else
        echo "$file"
    fi
}

# Drives that are there at this boot; those named in ABSENT are not plugged.
drives_begin() {
    local n
    mkdir "$NVMET/ports/1"
    echo loop >"$NVMET/ports/1/addr_trtype"
    for n in $(seq 0 $((UBD_DRIVES - 1))); do
        drive_begin "$n"
        [[ " ${ABSENT:-} " == *" $n "* ]] || drive_plug "$n"
    done
}

drive_begin() {
    local n=$1 file=$BELOW/ubd$1 all=$NVMET/subsystems/drive$1 direct=on
    mkdir -p "$BELOW"
    mv "/dev/ubd${LETTERS:$n:1}" "$file"
    zeroes_by_writing "$file"
    if [ "$(below "$n")" != "$file" ]; then
        [ "$UBD_LOSES_CACHE" = 0 ] || direct=off
        mknod "$BELOW/loop$n" b 7 "$n"
        losetup --sector-size "$UBD_BLOCK_BYTES" --direct-io=$direct "$BELOW/loop$n" "$file"
        rm -f "/dev/loop$n"
    fi
    mkdir "$all" "$all/namespaces/1"
    echo 1 >"$all/attr_allow_any_host"
    echo "SN$n" >"$all/attr_serial"
    echo "Strake UML" >"$all/attr_model"
    echo -n "$(below "$n")" >"$all/namespaces/1/device_path"
    echo 1 >"$all/namespaces/1/enable"
    ln -s "$all" "$NVMET/ports/1/subsystems/"
}

# The host's files in memory cannot zero a range, which the kernel learns by the first try; whoever tries it through
# a controller would see that fail. What is zeroed for that is written again.
zeroes_by_writing() {
    local at=$(($(blockdev --getsize64 "$1") - 4096))
    dd if="$1" of="$RUN/last" bs=4096 count=1 skip=$at iflag=direct,skip_bytes status=none
    blkdiscard --zeroout --offset $at --length 4096 "$1"
    dd if="$RUN/last" of="$1" bs=4096 count=1 seek=$at oflag=direct,seek_bytes status=none
}

drive_plug() {
    # No commands that keep a connection alive: there is none that could be lost.
    echo "transport=loop,nqn=drive$1,nr_io_queues=1,keep_alive_tmo=0" >/dev/nvme-fabrics
}

drive_unplug() {
    local c serial
    for c in /sys/class/nvme/nvme*; do
        read -r serial 2>/dev/null <"$c/serial" || continue
        [ "$serial" = "SN$1" ] || continue
        echo 1 >"$c/delete_controller"
        return
    done
    return 1
}

# Empties drive N, plugged or not. What lies on a loop device says that it deallocates, and does nothing.
wipe() {
    case $(below "$1") in
    */ubd*) blkdiscard -f "$(below "$1")" ;;
    *) blkdiscard -fz "$(below "$1")" ;;
    esac
}

# What the host does to the drives of an emulated guest; only the power is in its hands here, too.
host_drives() {
    case $1 in
    unplug) drive_unplug "$2" ;;
    plug) drive_plug "$2" ;;
    renew)
        wipe "$2"
        drive_plug "$2"
        ;;
    *) return 1 ;;
    esac
}
