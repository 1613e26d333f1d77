#!/bin/bash
# Scenarios in a Debian with systemd of its own, where Strake is installed as a package: from the installation over
# reboots to the purge. They follow each other on one array; each boot goes on where the one before has left.
# Usage: system.sh SHARE NAME...

SHARE=$1
shift
NAMES=$*
STEP=$SHARE/step
MEMBERS="/dev/ubda /dev/ubdb /dev/ubdc"
WRITTEN=/srv/data/written
# What lasts over reboots.
WORK=/var/lib/test

touch "$SHARE/up"
mkdir -p /srv/data $WORK

wants() { [[ " $NAMES " == *" $1 "* ]]; }
# The scenario has come to its end.
good() { wants "$1" && echo "ok $1"; }
bad() {
    echo "not ok $1: $2"
    {
        echo "--- units"
        systemctl --no-pager --failed
        systemctl --no-pager status strake srv-data.mount
        echo "--- journal"
        journalctl -b --no-pager -n 80
        echo "--- arrays"
        strake show data
        strake events | tail -20
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
# Waits so many seconds for a condition.
until_true() {
    local left=$(($1 * 5))
    shift
    until "$@"; do
        left=$((left - 1))
        [ $left -gt 0 ] || return 1
        sleep 0.2
    done
}
is_state() { [ "$(strake show data --json 2>/dev/null | jq -r .state)" = "$1" ]; }
is_mounted() { findmnt -n /srv/data >/dev/null; }
whole() { sha256sum --quiet -c $WORK/written.sum; }
# Load on the mounted file system, which verifies what it wrote; stops at the first I/O error.
load() {
    fio --name=load --directory=/srv/data --size=48M --rw=randrw --bs=4k --direct=1 --ioengine=psync --numjobs=1 \
        --time_based --runtime="$1" --verify=crc32c --verify_fatal=1 --exitall_on_error=1 --eta=never --output=$WORK/fio.log
}
under_load() {
    local name=$1 pid
    shift
    load 20 &
    pid=$!
    sleep 3
    "$@" || bad "$name" "'$*' failed under load"
    wait $pid || bad "$name" "load: $(tail -5 $WORK/fio.log | tr '\n' ' ')"
    until_true 30 is_state optimal || bad "$name" "the array is $(strake show data --json | jq -r .state)"
    whole || bad "$name" "a file has other bytes"
}
main_pid() { systemctl show -p MainPID --value strake; }
is_another() { local now; now=$(main_pid) && [ "$now" != 0 ] && [ "$now" != "$1" ]; }
kill_daemon() {
    local pid
    pid=$(main_pid)
    kill -KILL "$pid"
    until_true 30 is_another "$pid"
}
restart_daemon() {
    local pid
    pid=$(main_pid)
    systemctl restart strake
    is_another "$pid"
}
# The same package with a higher version.
newer() {
    dpkg-deb -R "$SHARE/strake.deb" $WORK/newer
    sed -i 's/^Version: .*/&+newer/' $WORK/newer/DEBIAN/control
    dpkg-deb -Znone -b $WORK/newer $WORK/newer.deb >$WORK/dpkg.log
}
upgrade() {
    local pid
    pid=$(main_pid)
    dpkg -i $WORK/newer.deb >$WORK/dpkg.log 2>&1 && until_true 30 is_another "$pid"
}

install() {
    if [ -s "$SHARE/boot.env" ]; then
        mkdir -p /etc/systemd/system/strake.service.d
        sed 's/^export \(.*\)/[Service]\nEnvironment=\1/' "$SHARE/boot.env" \
            >/etc/systemd/system/strake.service.d/test.conf
    fi
    dpkg -i "$SHARE/strake.deb" >$WORK/dpkg.log 2>&1 || bad install "dpkg: $(tail -5 $WORK/dpkg.log)"
    systemctl is-active --quiet strake || bad install "the daemon is not active"
    [ "$(systemctl show -p Type --value strake)" = notify ] || bad install "the unit has no readiness"
    # shellcheck disable=SC2086
    strake create data --level 5 $MEMBERS >$WORK/create.log 2>&1 || bad install "create: $(cat $WORK/create.log)"
    udevadm settle
    [ -b /dev/strake/data ] || bad install "no /dev/strake/data"
    for member in $MEMBERS; do
        udevadm info -q property "$member" | grep -qx ID_FS_TYPE=strake_member ||
            bad install "$member is not marked as a member: $(udevadm info -q property "$member" | grep ID_FS)"
    done
    mkfs.xfs -q /dev/strake/data 2>$WORK/mkfs.log || bad install "mkfs: $(cat $WORK/mkfs.log)"
    udevadm settle
    local uuid
    uuid=$(blkid -s UUID -o value /dev/strake/data)
    [ -b "/dev/disk/by-uuid/$uuid" ] || bad install "no link /dev/disk/by-uuid/$uuid"
    echo "UUID=$uuid /srv/data xfs defaults 0 2" >>/etc/fstab
    systemctl daemon-reload
    mount /srv/data || bad install "mount"
    head -c 20M /dev/urandom >$WRITTEN
    sha256sum $WRITTEN >$WORK/written.sum
    good install
}

# After a reboot: what stands in fstab is mounted, and the daemon was stopped cleanly before.
fstab() {
    is_mounted || bad fstab "/srv/data is not mounted"
    whole || bad fstab "a file has other bytes"
    systemctl is-failed --quiet srv-data.mount && bad fstab "the mount failed"
    strake events --json >$WORK/events.json
    jq -e -s 'map(select(.event == "stopped")) | last | .effect == "clean"' $WORK/events.json >/dev/null ||
        bad fstab "the stop was not clean: $(grep '"stopped"' $WORK/events.json | tail -1)"
    is_state optimal || bad fstab "the array is $(strake show data --json | jq -r .state)"
    good fstab
}

# The power goes; a member is gone when it comes back.
missing() {
    is_mounted || bad missing-member "/srv/data is not mounted"
    whole || bad missing-member "a file has other bytes"
    is_state degraded || bad missing-member "the array is $(strake show data --json | jq -r .state)"
    good missing-member
}
lose_member() {
    local last
    last=$(($(blockdev --getsize64 /dev/ubdc) / 1048576 - 1))
    dd if=/dev/zero of=/dev/ubdc bs=1M count=2 oflag=direct status=none
    dd if=/dev/zero of=/dev/ubdc bs=1M count=1 seek=$last oflag=direct status=none
}
replace_member() {
    strake add data /dev/ubdc >$WORK/add.log 2>&1 || bad missing-member "add: $(cat $WORK/add.log)"
    until_true 60 is_state optimal || bad missing-member "not rebuilt"
}

purge() {
    umount /srv/data
    dpkg --purge strake >$WORK/dpkg.log 2>&1 || bad purge "dpkg: $(tail -5 $WORK/dpkg.log)"
    [ -e /usr/bin/strake ] && bad purge "/usr/bin/strake is still there"
    [ -e /etc/strake ] && bad purge "/etc/strake is still there"
    dpkg -i "$SHARE/strake.deb" >$WORK/dpkg.log 2>&1 || bad purge "dpkg: $(tail -5 $WORK/dpkg.log)"
    until_true 30 is_state optimal || bad purge "the array does not come back"
    udevadm settle
    mount /srv/data || bad purge "mount"
    whole || bad purge "a file has other bytes"
    good purge
}

case $(cat "$STEP" 2>/dev/null) in
"")
    install
    next_boot fstab
    systemctl reboot
    ;;
fstab)
    fstab
    if wants kill; then under_load kill kill_daemon && good kill; fi
    if wants restart; then under_load restart restart_daemon && good restart; fi
    if wants upgrade; then newer && under_load upgrade upgrade && good upgrade; fi
    wants missing-member || wants purge || end
    next_boot missing
    sync
    lose_member
    # As a cut of the power: nothing is stopped.
    systemctl reboot --force --force
    ;;
missing)
    missing
    replace_member
    if wants purge; then purge; fi
    end
    ;;
esac
sleep 120
