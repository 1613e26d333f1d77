#!/bin/sh
# Runs Cockpit, with users of its own, in the mount namespace in which it is started: nothing that
# is mounted or written here is seen outside.
#
#   unshare --mount cockpit.sh FOLDER STRAKE PAGE PORT USER...
#
# Each USER may log in with the password USER-password. Those but the last may use sudo. The page and
# the program stand where the package puts them; /run is empty but for /run/strake.
set -eu
folder=$1 strake=$2 page=$3 port=$4
shift 4
etc=$folder/etc
mkdir -p "$etc" "$folder/home" "$folder/bin" "$folder/share"
cp "$strake" "$folder/bin/strake"
cp -r "$page" "$folder/share/strake"
chmod 0711 "$folder"

# The users.
for file in passwd shadow group sudoers; do
    cp -p "/etc/$file" "$etc/$file"
done
id=61000
for user; do
    home=$folder/home/$user
    mkdir -p "$home"
    chown "$id:$id" "$home"
    echo "$user:x:$id:$id::$home:/bin/bash" >>"$etc/passwd"
    echo "$user:x:$id:" >>"$etc/group"
    echo "$user:$(openssl passwd -6 "$user-password"):19000:0:99999:7:::" >>"$etc/shadow"
    id=$((id + 1))
    last=$user
done
for user; do
    test "$user" = "$last" || echo "$user ALL=(ALL:ALL) ALL" >>"$etc/sudoers"
done
for file in passwd shadow group sudoers; do
    mount --bind "$etc/$file" "/etc/$file"
done

mount -t overlay overlay -o "lowerdir=$folder/bin:/usr/bin" /usr/bin
mount -t overlay overlay -o "lowerdir=$folder/share:/usr/share/cockpit" /usr/share/cockpit
mount -t tmpfs -o mode=0755 tmpfs /run
mkdir -m 0700 /run/strake
exec /usr/lib/cockpit/cockpit-ws --no-tls --address 127.0.0.1 --port "$port"
