# What machines do to a daemon while nobody looks: it stands still, the machine sleeps, the clock is corrected.
# Arguments: the shared folder, then scenarios.

. "${BASH_SOURCE[0]%/*}/lib.sh"

# stands_still SECONDS CMD [OPTION…]: fio runs, and CMD keeps a daemon with these options from running for these
# seconds, which are more than its deadline of an I/O. No member may be put out for that, and no user may see an error.
stands_still() {
    local seconds=$1 cmd=$2
    shift 2
    daemon_start "$@"
    create data 5 -- 0 1 2 3 4
    known_on "$(device data)"
    load_start "$MNT/load" 32m
    "$cmd" "$seconds"
    sleep 5
    load_stop
    nothing_lost
    known_is_there
    umount_fs
}

nothing_lost() {
    same "$(show data '[.members[].state] | unique | join(" ")')" in_sync "the states of the members"
    same "$(strake events --json | grep -c '"member_out"' || true)" 0 "members that were put out"
    ! dmesg | grep -iE 'I/O error|critical (target|medium) error' || fail "the kernel saw an I/O error"
}

signalled() {
    kill -STOP "$(daemon_pid)"
    sleep "$1"
    kill -CONT "$(daemon_pid)"
}
# The defaults: 75 s.
scenario_stopped() { stands_still 95 signalled; }

frozen() {
    local group=/sys/fs/cgroup/strake
    mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup
    mkdir -p $group
    daemon_pid >$group/cgroup.procs
    echo 1 >$group/cgroup.freeze
    wait_for 10 "the frozen group" grep -q 'frozen 1' $group/cgroup.events
    sleep "$1"
    echo 0 >$group/cgroup.freeze
}
scenario_frozen() { stands_still 20 frozen --io-timeout 5; }

# All processes and the clock that counts up stand still; the wall clock goes on. The kernel gives up after 20 s where
# a process waits in it for I/O of the array while the daemon is already frozen, and all goes on: tried again then.
asleep() {
    local before try
    for try in 1 2 3 4; do
        before=$(date +%s)
        rtcwake --mode freeze --seconds "$1" >&2 && break
        say "the machine did not go to sleep: $(dmesg | grep -iE 'freez|suspend|wake' | tail -n 3 | tr '\n' '|')"
        [ "$try" -lt 4 ] || fail "the machine did not go to sleep $try times"
        sleep 3
    done
    before=$(($(date +%s) - before))
    say "the machine slept for $before s"
    [ $before -ge "$1" ] || fail "the machine slept for $before s"
}
scenario_suspended() { stands_still 20 asleep --io-timeout 5; }

scrubs() { strake events --json | grep -c '"job_started".*"scrub"' || true; }

# A machine whose clock is wrong when the daemon starts, and is corrected then, scrubs once because of it, and dates
# what comes afterwards right.
scenario_clock() {
    local now before
    now=$(date +%s)
    date --set "@$((now - 86400 * 40))"
    daemon_start
    create data 1 -- 0 1
    strake set data scrub_schedule=daily
    sleep 15
    before=$(scrubs)
    date --set "@$now"
    sleep 45
    say "scrubs before the correction: $before, then: $(($(scrubs) - before))"
    [ $(($(scrubs) - before)) -le 1 ] || fail "the correction makes it scrub again and again"
    strake set data scrub_priority=7
    strake rename data other
    strake events --json | tail -n 1 | grep -q "\"time\":\"$(date --utc +%Y)-" || fail "the last event is not dated by the clock"
    # Back: what is done in the future is not waited for.
    date --set "@$((now - 86400 * 3))"
    before=$(scrubs)
    sleep 30
    [ $(($(scrubs) - before)) -le 1 ] || fail "a clock that goes back makes it scrub again and again"
    date --set "@$((now + 75))"
}

keeps_drives() { false; }

run_all "$@"
