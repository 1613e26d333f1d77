# Installs and purges the packages in a copy of the root that is thrown away; see check.rs.
set -eu
deb=$1 folder=$2 exposure=$3 rpm=$4

# check NAME COMMAND…: one line says how it went.
check() {
    name=$1
    shift
    if said=$("$@" 2>&1); then
        echo "ok: $name"
    else
        echo "FAILED: $name: $said"
    fi
}
in_root() { chroot "$root" "$@"; }
not() { ! "$@"; }

mount -t tmpfs tmpfs "$folder"
mkdir "$folder/upper" "$folder/work" "$folder/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/upper,workdir=$folder/work" "$folder/root"
root=$folder/root
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/dev"
mknod -m 666 "$root/dev/null" c 1 3
mknod -m 666 "$root/dev/urandom" c 1 9
cp "$deb" "$root/strake.deb"
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8

check "it installs" in_root dpkg -i --force-depends /strake.deb
check "the program runs" in_root strake --version
check "the daemon is enabled" test -L "$root/etc/systemd/system/sysinit.target.wants/strake.service"
check "the daemon takes the configuration" in_root strake config check
echo "# changed" >>"$root/etc/strake/strake.toml"
check "installing it again works" in_root dpkg -i --force-depends --force-confdef /strake.deb
check "a configuration that was changed is kept" grep -qx '# changed' "$root/etc/strake/strake.toml"

said=$(in_root systemd-analyze verify --man=no strake.service 2>&1) && [ -z "$said" ] &&
    echo "ok: systemd takes the unit" || echo "FAILED: systemd takes the unit: $said"
check "the unit is restricted" in_root systemd-analyze security --offline=true \
    --no-pager "$exposure" strake.service
in_root systemd-analyze security --offline=true --no-pager strake.service | tail -n 1
check "systemd-tmpfiles takes its file" in_root systemd-tmpfiles --create strake.conf
check "the folder for state is the owner's" test "$(stat -c %a "$root/var/lib/strake")" = 700
if in_root udevadm verify --help >/dev/null 2>&1; then
    check "udev takes the rules" in_root udevadm verify /usr/lib/udev/rules.d/62-strake.rules
fi
check "the copyright names its owners" grep -q '^Copyright: 2026 The Strake contributors' \
    "$root/usr/share/doc/strake/copyright"
check "the manual is readable" sh -c "zcat '$root/usr/share/man/man8/strake-create.8.gz' |
    grep -q 'spare'"

# An array on files: udev knows its members, and purging leaves them as they are.
mkdir "$root/members"
truncate -s 64M "$root/members/0" "$root/members/1"
check "an array is made" in_root env STRAKE_DIR=/members/run strake create data --level 1 \
    --export none /members/0 /members/1
if loop=$(losetup --find --show --read-only "$root/members/0"); then
    name=${loop#/dev/}
    mknod "$root/dev/$name" b $(tr : ' ' <"/sys/class/block/$name/dev")
    in_root udevadm test --action=change "/sys/class/block/$name" >"$folder/udev" 2>&1 || true
    losetup --detach "$loop"
    check "udev finds no fault in the rules" not grep '62-strake.rules.*\(nvalid\|gnor\)' "$folder/udev"
    for line in ID_FS_USAGE=raid ID_FS_TYPE=strake_member ID_FS_LABEL=data; do
        check "udev knows a member: $line" grep -x " *$line" "$folder/udev"
    done
else
    echo "SKIPPED: no loop device for a member"
fi
before=$(sha256sum "$root/members/0" "$root/members/1")
mkdir -p "$root/run/strake-root/usr"
check "it is not removed below the root file system" not in_root dpkg --remove strake
rm -r "$root/run/strake-root"
check "it is removed" in_root dpkg --remove strake
check "removing keeps what the machine knows" test -d "$root/var/lib/strake"
check "it is purged" in_root dpkg --purge strake
for gone in etc/strake var/lib/strake usr/bin/strake usr/lib/systemd/system/strake.service \
    etc/systemd/system/sysinit.target.wants/strake.service; do
    check "purging removes $gone" not test -e "$root/$gone" -o -L "$root/$gone"
done
after=$(sha256sum "$root/members/0" "$root/members/1")
check "purging leaves members alone" test "$before" = "$after"

# The .rpm, in the same root: its scripts are a shell's, as those of the .deb.
if ! command -v rpm >/dev/null; then
    echo "SKIPPED: rpm is not installed"
    exit 0
fi
cp "$rpm" "$root/strake.rpm"
in_rpm() { in_root rpm --force-debian --nodeps "$@"; }
check "the .rpm installs" in_rpm -i /strake.rpm
check "its program runs" in_root strake --version
check "its daemon is enabled" test -L "$root/etc/systemd/system/sysinit.target.wants/strake.service"
check "rpm finds its files as they were" in_root rpm -V --nodeps strake
echo "# changed" >>"$root/etc/strake/strake.toml"
check "the .rpm takes the place of an earlier one" in_rpm -U --replacepkgs /strake.rpm
check "rpm keeps a configuration that was changed" grep -qx '# changed' "$root/etc/strake/strake.toml"
# As where the root file system is on an array.
mkdir -p "$root/run/strake-root/usr"
check "rpm does not remove it below the root file system" not in_rpm -e strake
rm -r "$root/run/strake-root"
check "rpm removes it" in_rpm -e strake
for gone in usr/bin/strake usr/lib/systemd/system/strake.service \
    etc/systemd/system/sysinit.target.wants/strake.service; do
    check "rpm removes $gone" not test -e "$root/$gone" -o -L "$root/$gone"
done
check "rpm leaves members alone" test "$before" = "$(sha256sum "$root/members/0" "$root/members/1")"
