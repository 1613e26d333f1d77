#!/bin/bash
# The root file system on an array, in a Debian with systemd. The first boot installs Strake as a package, copies its
# own root to an array and makes an initramfs there; the others boot from the array.
# Usage: root.sh SHARE NAME...

SHARE=$1
shift
NAMES=$*
STEP=$SHARE/step
MEMBERS="/dev/ubda /dev/ubdb /dev/ubdc"
# The host's kernel command line has the same.
UUID=5eed0000-0000-4000-8000-000000000033
WORK=/var/lib/test
SECRET=not-for-every-user

touch "$SHARE/up"
mkdir -p $WORK

wants() { [[ " $NAMES " == *" $1 "* ]]; }
good() { echo "ok $1"; }
bad() {
    echo "not ok $1: $2"
    {
        echo "--- units"
        systemctl --no-pager --failed
        systemctl --no-pager status strake strake-root-state
        echo "--- journal"
        journalctl -b --no-pager -n 80
        echo "--- kernel"
        dmesg | tail -40
        echo "--- arrays"
        timeout 10 strake show root
        timeout 10 strake events | tail -20
    } 2>&1 | sed 's/^/| /'
    end
}
end() {
    touch "$SHARE/done"
    sync
    systemctl poweroff --force --force
    sleep 60
}
next_boot() {
    echo "$1" >"$STEP"
    sync
}
until_true() {
    local left=$(($1 * 5))
    shift
    until "$@"; do
        left=$((left - 1))
        [ $left -gt 0 ] || return 1
        sleep 0.2
    done
}
is_state() { [ "$(strake show root --json 2>/dev/null | jq -r .state)" = "$1" ]; }
main_pid() { systemctl show -p MainPID --value strake; }
is_another() { local now; now=$(main_pid) && [ "$now" != 0 ] && [ "$now" != "$1" ]; }
load() {
    fio --name=load --directory=/srv --size=32M --rw=randrw --bs=4k --direct=1 --ioengine=psync --numjobs=1 \
        --time_based --runtime="$1" --verify=crc32c --verify_fatal=1 --exitall_on_error=1 --eta=never --output=/run/fio.log
}
events() { strake events --json | jq -r .time; }
# Whether the events that were known before the boot still are.
has_events() { events | head -n "$(wc -l </srv/events)" | cmp -s - /srv/events; }
whole() { sha256sum --quiet -c /srv/written.sum; }

make_root() {
    local at=/mnt version
    dpkg -i "$SHARE/strake.deb" >$WORK/dpkg.log 2>&1 || bad root-made "dpkg: $(tail -5 $WORK/dpkg.log)"
    # shellcheck disable=SC2086
    strake create root --level 5 $MEMBERS >$WORK/create.log 2>&1 || bad root-made "create: $(cat $WORK/create.log)"
    udevadm settle
    mkfs.ext4 -q -U $UUID /dev/strake/root 2>$WORK/mkfs.log || bad root-made "mkfs: $(cat $WORK/mkfs.log)"
    mount /dev/strake/root $at || bad root-made "mount"
    tar -C / --one-file-system -cf - --exclude=./usr/share/doc/* --exclude=./usr/share/locale/* --exclude=./usr/share/man/* \
        --exclude=./var/cache/apt/* --exclude=./var/lib/apt/lists/* . | tar -C $at -xf - || bad root-made "copying the root"
    echo "UUID=$UUID / ext4 errors=remount-ro 0 1" >$at/etc/fstab
    if [ -s "$SHARE/boot.env" ]; then
        mkdir -p $at/etc/systemd/system/strake.service.d
        sed 's/^export \(.*\)/[Service]\nEnvironment=\1/' "$SHARE/boot.env" >$at/etc/systemd/system/strake.service.d/test.conf
    fi
    cp "$SHARE/strake.deb" $at/srv/
    head -c 20M /dev/urandom >$at/srv/written
    # Passwords, and what the daemon keeps of a configuration with them.
    mkdir -p $at/etc/strake $at/var/lib/strake
    for file in etc/strake/password var/lib/strake/last-config.toml; do
        (umask 077 && echo "# $SECRET" >$at/$file)
    done
    (cd $at && sha256sum srv/written | sed 's, srv, /srv,' >srv/written.sum)
    # A package of a kernel would bring these.
    version=$(uname -r)
    mkdir -p "$at/lib/modules/$version" $at/boot
    touch "$at/lib/modules/$version/modules.order" "$at/lib/modules/$version/modules.builtin"
    echo CONFIG_RD_ZSTD=y >"$at/boot/config-$version"
    for folder in dev proc sys run; do mount --bind /$folder $at/$folder; done
    chroot $at depmod "$version"
    chroot $at update-initramfs -c -k "$version" >$WORK/initramfs.log 2>&1 ||
        bad root-made "update-initramfs: $(tail -5 $WORK/initramfs.log)"
    cp "$at/boot/initrd.img-$version" "$SHARE/initrd" || bad root-made "no initramfs"
    chroot $at lsinitramfs "/boot/initrd.img-$version" | grep -qx usr/bin/strake || bad root-made "the initramfs lacks strake"
    mkdir $WORK/initramfs
    unmkinitramfs "$SHARE/initrd" $WORK/initramfs >$WORK/unpack.log 2>&1 || bad root-made "unpack: $(tail -3 $WORK/unpack.log)"
    ! grep -rl "$SECRET" $WORK/initramfs || bad root-made "every user may read a password in the initramfs"
    chroot $at dracut --force --no-hostonly --gzip --kver "$version" /boot/initrd.dracut \
        --modules "base systemd systemd-initrd udev-rules rootfs-block fs-lib dracut-systemd shutdown strake" \
        >$WORK/dracut.log 2>&1 || bad root-made "dracut: $(tail -5 $WORK/dracut.log)"
    mv $at/boot/initrd.dracut "$SHARE/" || bad root-made "dracut makes no initramfs"
    umount -R $at || bad root-made "umount"
    strake stop --all >$WORK/stop.log 2>&1 || bad root-made "stop: $(cat $WORK/stop.log)"
    good root-made
}

# That of the initramfs has ended.
daemons() { grep -lx '@\?strake' /proc/[0-9]*/comm 2>/dev/null | sed 's,/proc/\(.*\)/comm,\1,'; }

# / is on the array, and the unit has taken over from the daemon of the initramfs.
is_root() {
    findmnt -n -o SOURCE / | grep -qx '/dev/ublkb[0-9]*' || bad "$1" "/ is on $(findmnt -n -o SOURCE /)"
    systemctl is-active --quiet strake || bad "$1" "the daemon is not active"
    [ "$(systemctl show -p RootDirectory --value strake)" = /run/strake-root ] || bad "$1" "the unit has no root of its own"
    local pid
    pid=$(main_pid)
    [ "$(tr '\0' ' ' <"/proc/$pid/cmdline")" = "@strake daemon " ] ||
        bad "$1" "the daemon is '$(tr '\0' ' ' <"/proc/$pid/cmdline")'"
    # Nothing that it runs from lies on the root.
    if grep -E '^[0-9a-f-]+ r.x[ps]' "/proc/$pid/maps" | awk '$6 ~ "^/" {print $4}' | sort -u | grep -qx "$(mountpoint -d /)"; then
        bad "$1" "the daemon runs from the file system that it serves"
    fi
    [ "$(daemons)" = "$pid" ] || bad "$1" "daemons: $(daemons), that of the unit: $pid"
    whole || bad "$1" "a file has other bytes"
}

root() {
    is_root root
    is_state optimal || bad root "the array is $(strake show root --json | jq -r .state)"
    strake status >/run/status || bad root "status: $(cat /run/status)"
    local pid load
    pid=$(main_pid)
    load 20 &
    load=$!
    sleep 2
    systemctl restart strake || bad root "restart"
    is_another "$pid" || bad root "restart: it is the daemon that was there"
    pid=$(main_pid)
    sleep 2
    kill -KILL "$pid"
    until_true 30 is_another "$pid" || bad root "no daemon after SIGKILL"
    pid=$(main_pid)
    # As an upgrade: the copy in memory is made anew.
    rm /run/strake-root/usr/bin/strake
    dpkg -i /srv/strake.deb >/run/dpkg.log 2>&1 || bad root "dpkg: $(tail -5 /run/dpkg.log)"
    is_another "$pid" || bad root "upgrade: it is the daemon that was there"
    cmp -s /usr/bin/strake /run/strake-root/usr/bin/strake || bad root "the copy in memory is not that of the package"
    wait $load || bad root "load: $(tail -5 /run/fio.log | tr '\n' ' ')"
    whole || bad root "a file has other bytes"
    dmesg | grep -i 'ublkb.*error\|I/O error' && bad root "the kernel saw errors"
    grep -q "$SECRET" /run/strake-root/etc/strake/password || bad root "the daemon has no password"
    # What happened stays known, and what was removed does not come back.
    [ "$(events | sed -n 1p)" = "$(head -n 1 /var/lib/strake/events.jsonl | jq -r .time)" ] ||
        bad root "the journal does not begin with what the disk had"
    events >/srv/events
    : >/run/strake-root/var/lib/strake/removed
    /usr/lib/strake/root-daemon keep && [ -e /var/lib/strake/removed ] || bad root "the state is not written back"
    rm /run/strake-root/var/lib/strake/removed
    good root
}

case $(cat "$STEP" 2>/dev/null) in
"")
    if wants root-made; then
        make_root
        end
    fi
    if wants root-dracut; then
        is_root root-dracut
        is_state optimal || bad root-dracut "the array is $(strake show root --json | jq -r .state)"
        good root-dracut
        end
    fi
    root
    next_boot clean
    systemctl reboot
    ;;
clean)
    is_root root-reboot
    is_state optimal || bad root-reboot "the array is $(strake show root --json | jq -r .state)"
    has_events || bad root-reboot "earlier events are lost: $(strake events | head -5 | tr '\n' ' ')"
    [ ! -e /run/strake-root/var/lib/strake/removed ] || bad root-reboot "what was removed came back"
    good root-reboot
    next_boot missing
    dd if=/dev/zero of=/dev/ubdc bs=1M count=2 oflag=direct status=none
    dd if=/dev/zero of=/dev/ubdc bs=1M count=1 seek=$(($(blockdev --getsize64 /dev/ubdc) / 1048576 - 1)) oflag=direct status=none
    # As a cut of the power: nothing is stopped.
    systemctl reboot --force --force
    ;;
missing)
    is_root root-degraded
    is_state degraded || bad root-degraded "the array is $(strake show root --json | jq -r .state)"
    strake add root /dev/ubdc >/run/add.log 2>&1 || bad root-degraded "add: $(cat /run/add.log)"
    until_true 90 is_state optimal || bad root-degraded "it stays $(strake show root --json | jq -r .state) with a new member"
    whole || bad root-degraded "a file has other bytes after the rebuild"
    good root-degraded
    end
    ;;
esac
sleep 120
