#!/bin/bash
# Makes of the tree of a fresh Debian the system of a test: after each boot it runs the script that the host asks for.
# Usage: system-setup.sh ROOT

set -eu
ROOT=$1
UNITS=$ROOT/etc/systemd/system

mkdir -p "$UNITS/multi-user.target.wants"
echo guest >"$ROOT/etc/hostname"
# Each boot has the same one.
echo 0123456789abcdef0123456789abcdef >"$ROOT/etc/machine-id"

cat >"$UNITS/test.service" <<'UNIT'
[Unit]
Description=The script that the host asks for
After=multi-user.target

[Service]
Type=oneshot
ExecStart=/usr/local/lib/test-script
StandardOutput=file:/dev/tty1
StandardError=file:/dev/tty1
TimeoutStartSec=infinity
UNIT
ln -s ../test.service "$UNITS/multi-user.target.wants/test.service"

mkdir -p "$ROOT/usr/local/lib"
cat >"$ROOT/usr/local/lib/test-script" <<'SCRIPT'
#!/bin/bash
export HOME=/root TERM=dumb
share=$(sed -n 's/.* test\.share=\([^ ]*\).*/\1/p' /proc/cmdline)
mkdir -p "$share"
mount -t hostfs -o "$share" none "$share"
exec bash -c "$(cat "$share/script")" </dev/null
SCRIPT
chmod 755 "$ROOT/usr/local/lib/test-script"

# Nothing that only takes time: no terminal, no timers, no question at the first boot.
for unit in getty@tty1.service systemd-firstboot.service apt-daily.timer apt-daily-upgrade.timer \
    dpkg-db-backup.timer e2scrub_all.timer fstrim.timer systemd-tmpfiles-clean.timer; do
    ln -sf /dev/null "$UNITS/$unit"
done
