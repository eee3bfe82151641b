# What a machine of host.py runs as its process 1.
# $1 its name   $2 its scratch folder   $3 the size of /dev/shm   $4 its setup
# $5 /etc/hosts   $6 /etc/resolv.conf
hostname "$1"
mount -t tmpfs -o mode=1777 scratch "$2"
mkdir "$2/.lab"; cd "$2/.lab"; mkdir cgroup etc
[ ! -d /sys/fs/cgroup ] || mount --rbind /sys/fs/cgroup cgroup
mount -t sysfs sysfs /sys
[ ! -d /sys/fs/cgroup ] || mount --rbind cgroup /sys/fs/cgroup
cp -a /etc/. etc; mount --bind etc /etc
rm -f /etc/resolv.conf /etc/nsswitch.conf /etc/hosts /etc/hostname
echo "$1" > /etc/hostname; echo "hosts: files dns" > /etc/nsswitch.conf
printf %s "$5" > /etc/hosts; printf %s "$6" > /etc/resolv.conf
umount -lR cgroup 2> /dev/null || :
mount -t tmpfs -o mode=755 dev /dev
for node in "null c 1 3" "zero c 1 5" "full c 1 7" "random c 1 8" "urandom c 1 9" "tty c 5 0" \
    "fuse c 10 229"; do
  mknod -m 666 /dev/$node
done
ln -s /proc/self/fd /dev/fd; mkdir /dev/shm /dev/pts
mount -t devpts -o newinstance,ptmxmode=0666 devpts /dev/pts; ln -s pts/ptmx /dev/ptmx
mount -t tmpfs -o "mode=1777,size=$3" shm /dev/shm
mount -t tmpfs -o mode=755 run /run
echo up; read -r address
cd "$2"
ip link set lo up
if [ -n "$address" ]; then
  ip addr add "10.77.0.$address/16" dev eth0
  ip addr add "fd77::$address/64" dev eth0 nodad
  ip link set eth0 up
  ip route add default via 10.77.255.254
else
  ip link add br0 type bridge; ip addr add 10.77.255.254/16 dev br0; ip link set br0 up
fi
eval "$4"
echo ready
# Until the other end of the pipe is closed; meanwhile, as process 1, the shell reaps all orphans.
cat || :
cd /; umount -lR "$2"; rmdir "$2"
rmdir "${2%/*}" 2> /dev/null || :
