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

# From now on each alert is a line of a file.
alerts() {
    printf '#!/bin/sh\necho "$STRAKE_ALERT_ARRAYS: $STRAKE_ALERT_EVENTS" >>%s/alerts\n' $WORK >/usr/local/lib/note-alert
    chmod 755 /usr/local/lib/note-alert
    printf '\n[[alerts]]\nname = "file"\n[alerts.exec]\ncommand = ["/usr/local/lib/note-alert"]\n' >>/etc/strake/strake.toml
    strake config check >$WORK/check.log 2>&1 || bad install "the configuration: $(cat $WORK/check.log)"
    systemctl restart strake || bad install "restart with alerts"
    strake alert test >$WORK/alert.log 2>&1 || bad install "alert test: $(cat $WORK/alert.log)"
}
install() {
    if [ -s "$SHARE/boot.env" ]; then
        mkdir -p /etc/systemd/system/strake.service.d
        sed 's/^export \(.*\)/[Service]\nEnvironment=\1/' "$SHARE/boot.env" \
            >/etc/systemd/system/strake.service.d/test.conf
    fi
    dpkg -i "$SHARE/strake.deb" >$WORK/dpkg.log 2>&1 || bad install "dpkg: $(tail -5 $WORK/dpkg.log)"
    systemctl is-active --quiet strake || bad install "the daemon is not active"
    alerts
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
    jq -e -s '.[(map(.event) | rindex("stopped")):] | map(.event) | index("started") and (index("log_replayed") | not)' \
        $WORK/events.json >/dev/null || bad fstab "the start after it recovered something: $(tail -5 $WORK/events.json)"
    is_state optimal || bad fstab "the array is $(strake show data --json | jq -r .state)"
    good fstab
}

# An array whose members come while the machine starts: loop devices, which a unit sets up after a while. Its file
# system stands in fstab as any other does.
late_array() {
    local n
    mkdir -p /srv/late $WORK/late
    for n in 0 1 2; do
        truncate -s 96M $WORK/late/$n
        losetup /dev/loop$n $WORK/late/$n || bad late "losetup"
    done
    strake create late --level 5 /dev/loop0 /dev/loop1 /dev/loop2 >$WORK/create.log 2>&1 ||
        bad late "create: $(cat $WORK/create.log)"
    udevadm settle
    mkfs.ext4 -q /dev/strake/late 2>$WORK/mkfs.log || bad late "mkfs: $(cat $WORK/mkfs.log)"
    echo "UUID=$(blkid -p -s UUID -o value /dev/strake/late) /srv/late ext4 defaults 0 2" >>/etc/fstab
    cat >/etc/systemd/system/late.service <<UNIT
[Unit]
DefaultDependencies=no
After=strake.service
[Service]
Type=simple
ExecStart=/bin/bash $WORK/late/attach
[Install]
WantedBy=sysinit.target
UNIT
    systemctl -q enable late
    attach_late 2 2 2
}
# How many seconds before each member comes.
attach_late() {
    local n=0 seconds
    for seconds; do
        echo "sleep $seconds; losetup /dev/loop$n $WORK/late/$n; cut -d' ' -f1 /proc/uptime >/run/late.$n"
        n=$((n + 1))
    done >$WORK/late/attach
}
late_state() { strake show late --json 2>/dev/null | jq -r .state; }
# Seconds since the start of the machine when a unit became active, and a later time.
active_at() { echo $(($(systemctl show -p ActiveEnterTimestampMonotonic --value "$1") / 1000000)); }
whole_seconds() { cut -d. -f1 "$1"; }
is_late_mounted() {
    findmnt -n /srv/late >/dev/null || bad "$1" "/srv/late is not mounted"
    is_mounted || bad "$1" "/srv/data is not mounted"
    [ "$(active_at strake)" -le "$(whole_seconds /run/late.0)" ] || bad "$1" "the daemon was not ready before a member came"
    [ "$(active_at srv-late.mount)" -ge "$(whole_seconds "/run/late.$2")" ] || bad "$1" "mounted before its members came"
}
late() {
    is_late_mounted late 2
    [ "$(late_state)" = optimal ] || bad late "the array is $(late_state)"
    good late
}
# One of three never comes: it is waited for 10 s.
late_missing() {
    is_late_mounted late-missing 1
    [ "$(late_state)" = degraded ] || bad late-missing "the array is $(late_state)"
    local waited
    waited=$(($(active_at srv-late.mount) - $(whole_seconds /run/late.1)))
    [ $waited -ge 5 ] && [ $waited -le 45 ] || bad late-missing "mounted $waited s after the last member that came"
    systemctl -q disable late
    sed -i '/srv.late/d' /etc/fstab
    systemctl daemon-reload
    umount /srv/late || bad late-missing "umount"
    strake stop late >$WORK/stop.log 2>&1 || bad late-missing "stop: $(cat $WORK/stop.log)"
    losetup -D
    good late-missing
}

# The power goes; a member is gone when it comes back.
missing() {
    is_mounted || bad missing-member "/srv/data is not mounted"
    whole || bad missing-member "a file has other bytes"
    is_state degraded || bad missing-member "the array is $(strake show data --json | jq -r .state)"
    # Another array may be told of in the same message.
    until_true 30 grep -qsE '^([^:]* )?data( [^:]*)?: .*degraded' $WORK/alerts ||
        bad missing-member "no alert says that data is degraded: $(tail -5 $WORK/alerts 2>&1 | tr '\n' ';')"
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

after_late() {
    wants missing-member || wants purge || end
    rm -f $WORK/alerts
    next_boot missing
    sync
    lose_member
    # As a cut of the power: nothing is stopped.
    systemctl reboot --force --force
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
    if wants late || wants late-missing; then
        late_array
        next_boot late
        systemctl reboot
    else
        after_late
    fi
    ;;
late)
    late
    attach_late 1 1
    next_boot late-missing
    systemctl reboot
    ;;
late-missing)
    late_missing
    after_late
    ;;
missing)
    missing
    replace_member
    if wants purge; then purge; fi
    end
    ;;
esac
sleep 120
