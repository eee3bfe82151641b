# What a machine of host.py runs as its process 1; without root, as root of a user namespace.
# $1 its name   $2 its scratch folder   $3 the size of /dev/shm   $4 its setup
# $5 /etc/hosts   $6 /etc/resolv.conf   $7 its boot id   $8 the library of its clock, or nothing
# $9 how many seconds that is ahead
hostname "$1"
mount -t tmpfs -o mode=1777 scratch "$2"
mkdir "$2/.lab"; cd "$2/.lab"; mkdir cgroup etc work dev
[ ! -d /sys/fs/cgroup ] || mount --rbind /sys/fs/cgroup cgroup
mount -t sysfs sysfs /sys
[ ! -d /sys/fs/cgroup ] || mount --rbind cgroup /sys/fs/cgroup || :
# what belongs to the whole kernel is not theirs to change; what is under net is
for part in sys sys/net; do mount --bind /proc/$part /proc/$part; done
mount -o remount,bind,ro /proc/sys
mount -t overlay -o lowerdir=/etc,upperdir=etc,workdir=work etc /etc 2> /dev/null ||
  { cp -a /etc/. etc 2> /dev/null || [ -e etc/passwd ]; mount --bind etc /etc; }
rm -f /etc/resolv.conf /etc/nsswitch.conf /etc/hosts /etc/hostname /etc/machine-id
echo "$1" > /etc/hostname; echo "hosts: files dns" > /etc/nsswitch.conf
printf %s "$5" > /etc/hosts; printf %s "$6" > /etc/resolv.conf
echo "$7" > boot_id; mount --bind boot_id /proc/sys/kernel/random/boot_id
echo "$7" | tr -d - > /etc/machine-id
umount -l cgroup 2> /dev/null || :
mount -t tmpfs -o mode=755 dev dev
if cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty dev 2> /dev/null; then
  mknod -m 666 dev/fuse c 10 229
else # nobody may make a device in a user namespace, but use those that are there
  for node in null zero full random urandom tty; do
    rm -f dev/$node; : > dev/$node; mount --bind /dev/$node dev/$node
  done
fi
ln -s /proc/self/fd dev/fd; mkdir dev/shm dev/pts
mount --rbind dev /dev; umount -l dev
mount -t devpts -o newinstance,ptmxmode=0666 devpts /dev/pts; ln -s pts/ptmx /dev/ptmx
mount -t tmpfs -o "mode=1777,size=$3" shm /dev/shm
mount -t tmpfs -o mode=755 run /run
echo up; read -r _
cd "$2"
eval "$4"
# last, and for all programs: a variable would be seen by those who look at their environment
[ -z "$8" ] || { echo "$9" > /etc/lab-clock; echo "$8" > /etc/ld.so.preload; }
echo ready
# Until the other end of the pipe is closed; meanwhile, as process 1, the shell reaps all orphans.
cat || :
cd /; umount -l "$2"; rmdir "$2"
rmdir "${2%/*}" 2> /dev/null || :
