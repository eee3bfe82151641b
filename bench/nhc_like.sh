#!/usr/bin/env bash
# 18 checks of one host in the manner of LBNL's Node Health Check: bash that reads /proc and starts
# as few commands as it can (df twice, ps once, as NHC does). What such a thing costs at least.
set -u

failed=0
fail() {
    printf 'ERROR: %s\n' "$*"
    failed=1
}

declare -A mounted options meminfo free_kib free_inodes running
while read -r _ where kind how _; do
    mounted[$where]=$kind
    options[$where]=$how
done </proc/mounts
while read -r name value _; do meminfo[${name%:}]=$value; done </proc/meminfo
{
    read -r _
    while read -r _ _ _ kib _ where; do free_kib[$where]=$kib; done
} < <(df -Pk -x tmpfs -x devtmpfs 2>/dev/null)
{
    read -r _
    while read -r _ _ _ inodes _ where; do free_inodes[$where]=$inodes; done
} < <(df -Pi -x tmpfs -x devtmpfs 2>/dev/null)
while read -r command; do running[$command]=1; done < <(ps -e -o comm=)
cores=0
while read -r key _; do [[ $key == processor ]] && ((cores++)); done </proc/cpuinfo
read -r load _ </proc/loadavg

# 1-4   file systems: there, of the right kind, writable
[[ -v mounted[/] ]] || fail "/ is not mounted"
[[ -v mounted[/proc] && ${mounted[/proc]} == proc ]] || fail "/proc is not mounted"
[[ ${mounted[/dev/shm]:-} == tmpfs ]] || fail "/dev/shm is no tmpfs"
[[ ,${options[/]:-}, == *,rw,* ]] || fail "/ is read-only"
# 5-8   space, inodes, a file that can be written
((${free_kib[/]:-0} > 1048576)) || fail "/ has less than 1 GiB free"
[[ ${free_inodes[/]:-0} == - ]] || ((${free_inodes[/]:-0} > 10000)) || fail "/ has few inodes"
[[ -d /tmp && -w /tmp && -k /tmp ]] || fail "/tmp is not writable by all"
[[ -c /dev/null && -w /dev/null ]] || fail "/dev/null is no device"
# 9-12  processors, memory, swap, load
((cores > 0)) || fail "no processor"
((${meminfo[MemTotal]:-0} > 1048576)) || fail "less than 1 GiB of memory"
((${meminfo[MemAvailable]:-0} > 524288)) || fail "less than 512 MiB of memory available"
((${load%.*} < 20 * cores)) || fail "load $load on $cores processors"
# 13-15 network: loopback and one more interface up, a name of our own
[[ $(</sys/class/net/lo/flags) != 0x8 ]] || fail "lo is down"
up=0
for state in /sys/class/net/*/operstate; do [[ $(<"$state") == up ]] && ((up++)); done
((up > 0)) || fail "no interface is up"
[[ -n $(</proc/sys/kernel/hostname) ]] || fail "no host name"
# 16-18 limits, users, processes
files=$(ulimit -n)
[[ $files == unlimited ]] || ((files >= 1024)) || fail "$files open files"
[[ $(</etc/passwd) == root:* || $(</etc/passwd) == *$'\n'root:* ]] || fail "no root in /etc/passwd"
((${#running[@]} > 0)) || fail "no process can be seen"

exit "$failed"
