# Sourced by the guest's scripts: drives by number, the daemon, load, waiting, and the runner of scenarios.
#
# Each scenario is a function `scenario_NAME` (dashes of the name as underscores) that fails by its first
# failing command or by `fail WHY`. It runs in a subshell; what must outlive it lies in $RUN. Before each, the
# machine is laid anew: no daemon, no array, all drives plugged; and wiped, unless the boot's own function
# `keeps_drives NAME` says that they hold what an earlier boot left on purpose. What else a boot's scenarios may
# leave behind, its function `lay_anew_more` takes away.
#
# The daemon must not share a mount namespace with a user of its device, so file systems are mounted in a
# namespace of their own: `user CMD` runs there.

set -uE
export LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
SHARE=$1
shift
RUN=/run/rig
MNT=/run/rig/mnt
export STRAKE_DIR=/run/strake
mkdir -p "$RUN" "$MNT" "$STRAKE_DIR"
cd "$RUN"
touch "$SHARE/up" # for the host: from here on, what happens is ours

# Empties drive N.
wipe() {
    local dev
    dev=$(drive "$1")
    blkdiscard -f "$dev" 2>/dev/null || blkdiscard "$dev"
}

# What kind of machine this is; the host writes it.
. "$SHARE/machine.env"
[ ! -e "$SHARE/boot.env" ] || . "$SHARE/boot.env"
[ "$MACHINE" = emulated ] || . "$SHARE/usermode.sh"

say() { echo "# $*"; }
fail() {
    echo "$*" >"$RUN/why"
    exit 1
}

# ---- the host's hands ---------------------------------------------------------------------------------

# host unplug N | plug N | renew N (an empty drive in its place) | warn N (its SMART log does, from now on) | powercut
host() {
    local n answer
    if [ "$MACHINE" = user-mode ] && [ "$1" != powercut ]; then
        host_drives "$@" || fail "$*: it cannot be done"
        note_plugged "$@"
        return 0
    fi
    n=$(($(cat "$RUN/asked" 2>/dev/null || echo 0) + 1))
    echo "$n" >"$RUN/asked"
    echo "$*" >"$SHARE/ask.half"
    mv "$SHARE/ask.half" "$SHARE/ask.$n"
    for _ in $(seq 600); do
        if [ -e "$SHARE/answer.$n" ]; then
            answer=$(cat "$SHARE/answer.$n")
            [ "$answer" = ok ] || fail "host $*: $answer"
            note_plugged "$@"
            return 0
        fi
        sleep 0.1
    done
    fail "the host does not answer $*"
}

note_plugged() {
    case $1 in
    unplug) touch "$RUN/unplugged.$2" ;;
    plug | renew) rm -f "$RUN/unplugged.$2" ;;
    esac
}

# ---- drives -------------------------------------------------------------------------------------------

# The block device of drive N, whatever the kernel calls it today. Waits for it to appear.
drive() {
    local c name serial
    for _ in $(seq 100); do
        for c in /sys/class/nvme/nvme*; do
            # Without a process of its own: each costs tens of milliseconds here.
            read -r serial 2>/dev/null <"$c/serial" || continue
            [ "$serial" = "SN$1" ] || continue
            for name in "$c"/nvme*n1; do
                name=${name##*/}
                name=${name/c[0-9]*n1/n1}
                if [ -b "/dev/$name" ]; then
                    echo "/dev/$name"
                    return 0
                fi
            done
        done
        sleep 0.2
    done
    fail "drive $1 does not appear"
}

drives() {
    local n
    for n in "$@"; do drive "$n"; done
}

count_drives() { find /sys/class/nvme -mindepth 1 2>/dev/null | wc -l; }

# ---- strake -------------------------------------------------------------------------------------------

strake() {
    "$RUN/strake" "$@" && return 0
    local rc=$?
    echo "strake $*: exit code $rc" >"$RUN/why"
    return $rc
}

# The daemon gets a session of its own, so that no signal meant for a scenario reaches it.
# daemon_start [OPTION…]
daemon_start() {
    setsid "$RUN/strake" daemon "$@" >>"$RUN/daemon.log" 2>&1 </dev/null &
    echo $! >"$RUN/daemon.pid"
    # Not `strake show`, which looks at the drives itself as long as there is no daemon.
    wait_for 60 "the daemon's answer" daemon_answers
}

daemon_answers() {
    curl -sf --max-time 10 --unix-socket "$STRAKE_DIR/api.sock" http://strake/v1/version
}

daemon_pid() { cat "$RUN/daemon.pid"; }

daemon_gone() { ! kill -0 "$(daemon_pid)" 2>/dev/null; }

daemon_kill() {
    kill -KILL "$(daemon_pid)"
    wait_for 30 "the end of the killed daemon" daemon_gone
}

daemon_stop() {
    kill -TERM "$(daemon_pid)"
    wait_for 60 "the daemon's clean end" daemon_gone
}

refused() {
    "$RUN/strake" "$@" >"$RUN/refused.log" 2>&1 && fail "strake $* was not refused"
    cat "$RUN/refused.log"
}

# show NAME FILTER: one thing that `strake show` knows of the array.
show() { strake show "$1" --json | jq -r "$2"; }

# metric NAME METRIC: a counter of the array, from the daemon's metrics.
metric() {
    curl -s --unix-socket "$STRAKE_DIR/api.sock" http://strake/metrics |
        awk -v name="$2{array=\"$1\"}" '$1 == name { print $2 }'
}

device() {
    local device
    device=$(show "$1" .device)
    [ -b "$device" ] || fail "the array's device is '$device', not a block device"
    echo "$device"
}

# What is asked again and again is found without jq: of the array, `state` comes before that of its members.
state_is() {
    local json
    json=$(strake show "$1" --json) || [ $? -ge 5 ]
    [[ $json =~ \"state\":\"([a-z_]+)\" ]] && [ "${BASH_REMATCH[1]}" = "$2" ]
}

settled() {
    state_is "$1" optimal || return 1
    [ "$(show "$1" '[.jobs[] | select(.kind != "scrub")] | length')" = 0 ]
}

wait_state() { wait_for "$3" "state $2 of $1" state_is "$1" "$2"; }

# Whole again, with no job left that makes it so.
wait_settled() { wait_for "$2" "$1 to be whole again" settled "$1"; }

# wait_for SECONDS WHAT CMD…: until CMD succeeds.
wait_for() {
    local end=$((SECONDS + $1)) what=$2
    shift 2
    # In a subshell: a `fail` of CMD means not yet.
    until ("$@") >"$RUN/wait.log" 2>&1; do
        if [ $SECONDS -ge $end ]; then
            cat "$RUN/wait.log"
            strake show --json || true
            fail "waited in vain for $what"
        fi
        sleep 0.2
    done
    rm -f "$RUN/why"
}

# create NAME LEVEL [OPTION…] -- DRIVE-NUMBER…
create() {
    local name=$1 level=$2 options=() numbers
    shift 2
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    mapfile -t numbers < <(drives "$@")
    strake create "$name" --level "$level" "${options[@]}" --export ublk --yes "${numbers[@]}"
    wait_for 60 "the device of $name" device "$name"
}

# ---- users of the device ------------------------------------------------------------------------------

user() { nsenter --mount --target "$(cat "$RUN/user.pid")" "$@"; }

user_start() {
    [ -e "$RUN/user.pid" ] && kill -0 "$(cat "$RUN/user.pid")" 2>/dev/null && return 0
    setsid unshare --mount --propagation private sleep infinity </dev/null >/dev/null 2>&1 &
    echo $! >"$RUN/user.pid"
    sleep 0.5
}

mount_fs() { user mount "$1" "$MNT"; }

umount_fs() {
    user umount "$MNT"
    echo 3 >/proc/sys/vm/drop_caches
}

# The sizes of requests: from one logical block to 1 MiB.
MIX=512/15:4k/30:12k/10:64k/20:256k/15:1m/10
MIX_4K=4k/40:12k/10:64k/25:256k/15:1m/10

# verified FILE SIZE SEED [OPTION…]: random writes of mixed sizes, all read back and checked.
verified() {
    local file=$1 size=$2 seed=$3
    shift 3
    user fio --name=verified --filename="$file" --size="$size" --randseed="$seed" \
        --ioengine=io_uring --direct=1 --rw=randwrite --bssplit="${BSSPLIT:-$MIX}" --iodepth=16 \
        --serialize_overlap=1 --verify=crc32c --verify_fatal=1 --do_verify=1 \
        --verify_state_save=0 --output="$RUN/fio.log" \
        "$@" || {
        tail -n 20 "$RUN/fio.log"
        fail "fio on $file failed"
    }
}

# The same blocks once more, read only.
verified_again() { verified "$@" --verify_only; }

# Load on a file until it is told to stop; any error of I/O or of content ends it early.
load_start() {
    rm -f "$RUN/load.stop" "$RUN/load.failed"
    (
        trap - ERR
        set +e
        round=0
        while [ ! -e "$RUN/load.stop" ]; do
            round=$((round + 1))
            user fio --name=load --filename="$1" --size="$2" --randseed="$round" \
                --ioengine=io_uring --direct=1 --rw=randwrite --bssplit="${BSSPLIT:-$MIX}" \
                --iodepth=16 --serialize_overlap=1 --verify=crc32c --verify_fatal=1 --do_verify=1 \
                --verify_state_save=0 --output="$RUN/load.log" || {
                cp "$RUN/load.log" "$RUN/load.failed"
                break
            }
            echo "$round" >"$RUN/load.rounds"
        done
    ) </dev/null &
    echo $! >"$RUN/load.pid"
    sleep 4
}

load_stop() {
    touch "$RUN/load.stop"
    wait_for 120 "the load's end" load_gone
    if [ -e "$RUN/load.failed" ]; then
        tail -n 30 "$RUN/load.failed"
        fail "fio met an error under load"
    fi
    say "load: $(cat "$RUN/load.rounds" 2>/dev/null || echo 0) rounds"
}

load_gone() { ! kill -0 "$(cat "$RUN/load.pid")" 2>/dev/null; }

# The digest of the first MIB MiB of a device or file, read past the page cache.
digest() {
    user dd if="$1" bs=1M count="$2" iflag=direct status=none | md5sum | cut -d' ' -f1
}

same() { [ "$1" = "$2" ] || fail "$3: $1 is not $2"; }

# xfs on this device and a file on it whose digest is kept.
known_on() {
    user mkfs.xfs -q -f "$1"
    mount_fs "$1"
    verified "$MNT/known" 48m 7 --fsync_on_close=1
    digest "$MNT/known" 48 >"$RUN/known"
}

known_is_there() { same "$(digest "$MNT/known" 48)" "$(cat "$RUN/known")" "digest of the known file"; }

# The file system of `data` is sound, and it is so without these drives, too.
sound_without() {
    local dev n
    dev=$(device data)
    known_is_there
    umount_fs
    user xfs_repair -n "$dev"
    mount_fs "$dev"
    for n in "$@"; do host unplug "$n"; done
    wait_state data degraded 30
    known_is_there
    verified_again "$MNT/known" 48m 7
    umount_fs
    user xfs_repair -n "$dev"
}

# A small array is whole again before anybody has looked.
# back_and_gone DEV…: a RAID 5 of these comes back with them after a restart of the daemon, and is nowhere when it
# is destroyed.
back_and_gone() {
    local n members
    daemon_start
    strake create data --level 5 --export ublk --yes "$@"
    wait_for 60 "the device of data" device data
    known_on "$(device data)"
    umount_fs
    strake stop data
    daemon_stop
    daemon_start
    wait_state data optimal 60
    read -r -a members <<<"$(show data '[.members[].device] | join(" ")')"
    same "$(numbers "${members[@]}")" "$(numbers "$@")" "the devices of the members"
    mount_fs "$(device data)"
    known_is_there
    umount_fs
    strake stop data
    strake destroy data --yes
    same "$(strake scan --json)" "[]" "what is left"
    for n in $(seq 0 $((DRIVES - 1))); do
        "$RUN/strake" examine "$(drive "$n")" >/dev/null 2>&1 && fail "drive $n still carries a member"
    done
    for n in "$@"; do
        "$RUN/strake" examine "$n" >/dev/null 2>&1 && fail "$n still carries a member"
    done
    daemon_stop
}

# Device numbers: a device has several names.
numbers() { stat --dereference --format=%t:%T "$@" | paste -sd' '; }

degraded_or_said() { state_is data degraded || strake events | grep -qi degraded; }

# ---- the runner ---------------------------------------------------------------------------------------

# Ends whatever a scenario left running; wipes the drives unless told to keep them.
lay_anew() {
    local pid n
    touch "$RUN/load.stop"
    for pid in load user; do
        [ -e "$RUN/$pid.pid" ] || continue
        if [ $pid = user ]; then
            user umount "$MNT" 2>/dev/null
        fi
        kill -KILL "$(cat "$RUN/$pid.pid")" 2>/dev/null
        rm -f "$RUN/$pid.pid"
    done
    pkill -KILL -x fio 2>/dev/null
    if [ -e "$RUN/daemon.pid" ] && ! daemon_gone; then
        timeout 30 "$RUN/strake" stop --all >/dev/null 2>&1
        kill -TERM "$(daemon_pid)" 2>/dev/null
        for _ in $(seq 100); do
            daemon_gone && break
            sleep 0.1
        done
        kill -KILL "$(daemon_pid)" 2>/dev/null
        sleep 0.5
    fi
    declare -F lay_anew_more >/dev/null && (lay_anew_more)
    rm -rf "$STRAKE_DIR" "$RUN/daemon.pid" "$RUN/why"
    mkdir -p "$STRAKE_DIR"
    : >"$RUN/daemon.log"
    for n in "$RUN"/unplugged.*; do
        [ -e "$n" ] && (host renew "${n##*.}")
    done
    if ! keeps_drives "$1"; then
        for n in $(seq 0 $((DRIVES - 1))); do
            wipefs -qaf "$(drive "$n")"
            wipe "$n"
        done
    fi
    user_start
}

quote() { sed 's/^/| /'; }

# Runs one scenario and says what came of it.
run_scenario() {
    local name=$1 rc
    lay_anew "$name" >"$RUN/lay.log" 2>&1
    dmesg --clear 2>/dev/null
    (
        trap 'rc=$?; [ -e "$RUN/why" ] || echo "line $LINENO: $BASH_COMMAND: status $rc" >"$RUN/why"' ERR
        # What was done when, for a reader of the logs; written straight to the host.
        exec {BASH_XTRACEFD}>"$SHARE/$name.trace"
        PS4='+ $SECONDS s  '
        set -ex
        "scenario_${name//-/_}"
    ) >"$RUN/scenario.log" 2>&1 </dev/null
    rc=$?
    grep '^# ' "$RUN/scenario.log"
    if [ $rc -eq 0 ]; then
        echo "ok $name"
        return
    fi
    {
        echo "--- laid anew:" && tail -n 20 "$RUN/lay.log"
        echo "--- scenario:" && tail -n 60 "$RUN/scenario.log"
        echo "--- daemon:" && tail -n 60 "$RUN/daemon.log"
        echo "--- kernel:" && dmesg | tail -n 40
    } 2>&1 | quote
    echo "not ok $name: $(head -n 1 "$RUN/why" 2>/dev/null)"
}

# What every boot needs, then the scenarios in the order given.
run_all() {
    local name
    for name in nvme ublk_drv xfs ext4 raid456 dm_mod loop; do
        modprobe $name || say "no module $name"
    done
    [ "$MACHINE" = emulated ] || drives_begin
    DRIVES=$(count_drives)
    install -m 755 "$SHARE/strake" "$RUN/strake"
    ip link set lo up 2>/dev/null
    for name in "$@"; do
        run_scenario "$name"
    done
    lay_anew_end
    touch "$SHARE/done"
}

# The last scenario's daemon must let go of the drives before the power goes, as on a real machine.
lay_anew_end() {
    if [ -e "$RUN/daemon.pid" ] && ! daemon_gone; then
        user umount "$MNT" 2>/dev/null
        kill -TERM "$(daemon_pid)" 2>/dev/null
        for _ in $(seq 100); do
            daemon_gone && break
            sleep 0.1
        done
    fi
    sync
}
