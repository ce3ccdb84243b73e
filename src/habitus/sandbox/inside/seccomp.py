"""The system-call filter: allows the calls that Python tools need, and no others."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Sequence

from .confine import ANY_NAMESPACE, PR_SET_NO_NEW_PRIVS, prctl

assert sys.platform != "win32"

_PR_SET_SECCOMP = 22

# What Python, its scientific packages and ordinary programs need, as `name:x86_64:aarch64` of the kernel's tables. Left
# out besides what attacks start from: System V and POSIX queues, which have no limit of ours, and asynchronous I/O.
_NEEDED = """
    read:0:63 write:1:64 open:2: close:3:57 stat:4: fstat:5:80 lstat:6: lseek:8:62 pread64:17:67 pwrite64:18:68
    readv:19:65 writev:20:66 preadv:295:69 pwritev:296:70 preadv2:327:286 pwritev2:328:287 access:21:
    faccessat:269:48 faccessat2:439:439 openat:257:56 openat2:437:437 creat:85: newfstatat:262:79 statx:332:291
    fcntl:72:25 flock:73:32 fsync:74:82 fdatasync:75:83 sync_file_range:277:84 truncate:76:45 ftruncate:77:46
    fallocate:285:47 fadvise64:221:223 readahead:187:213 copy_file_range:326:285 sendfile:40:71 splice:275:76
    tee:276:77 dup:32:23 dup2:33: dup3:292:24 pipe:22: pipe2:293:59 close_range:436:436 ioctl:16:29 umask:95:166
    getdents:78: getdents64:217:61 getcwd:79:17 chdir:80:49 fchdir:81:50 rename:82: renameat:264:38
    renameat2:316:276 mkdir:83: mkdirat:258:34 rmdir:84: link:86: linkat:265:37 unlink:87: unlinkat:263:35
    symlink:88: symlinkat:266:36 readlink:89: readlinkat:267:78 mknod:133: mknodat:259:33 statfs:137:43
    fstatfs:138:44 getxattr:191:8 lgetxattr:192:9 fgetxattr:193:10 listxattr:194:11 llistxattr:195:12
    flistxattr:196:13 inotify_init:253: inotify_init1:294:26 inotify_add_watch:254:27 inotify_rm_watch:255:28
    mmap:9:222 mprotect:10:226 munmap:11:215 brk:12:214 mremap:25:216 msync:26:227 mincore:27:232 madvise:28:233
    mlock:149:228 mlock2:325:284 munlock:150:229 mlockall:151:230 munlockall:152:231 membarrier:324:283
    pkey_mprotect:329:288 pkey_alloc:330:289 pkey_free:331:290 get_mempolicy:239:236 map_shadow_stack:453:453
    mseal:462:462 clone:56:220 fork:57: vfork:58: execve:59:221 execveat:322:281 exit:60:93 exit_group:231:94
    wait4:61:260 waitid:247:95 getpid:39:172 getppid:110:173 gettid:186:178 getpgrp:111: getpgid:121:155
    setpgid:109:154 getsid:124:156 setsid:112:157 getuid:102:174 geteuid:107:175 getgid:104:176 getegid:108:177
    getgroups:115:158 getresuid:118:148 getresgid:120:150 setuid:105:146 setgid:106:144 setreuid:113:145
    setregid:114:143 setresuid:117:147 setresgid:119:149 capget:125:90 capset:126:91 prctl:157:167 arch_prctl:158:
    set_tid_address:218:96 set_robust_list:273:99 get_robust_list:274:100 rseq:334:293 getrlimit:97:163
    setrlimit:160:164 prlimit64:302:261 getrusage:98:165 times:100:153 sysinfo:99:179 uname:63:160 getrandom:318:278
    pidfd_open:434:434 futex:202:98 futex_waitv:449:449 futex_wake:454:454 futex_wait:455:455 futex_requeue:456:456
    poll:7: ppoll:271:73 select:23: pselect6:270:72 epoll_create:213: epoll_create1:291:20 epoll_ctl:233:21
    epoll_wait:232: epoll_pwait:281:22 epoll_pwait2:441:441 eventfd:284: eventfd2:290:19 nanosleep:35:101
    clock_nanosleep:230:115 clock_gettime:228:113 clock_getres:229:114 gettimeofday:96:169 time:201: pause:34:
    alarm:37: getitimer:36:102 setitimer:38:103 timer_create:222:107 timer_settime:223:110 timer_gettime:224:108
    timer_getoverrun:225:109 timer_delete:226:111 timerfd_create:283:85 timerfd_settime:286:86
    timerfd_gettime:287:87 rt_sigaction:13:134 rt_sigprocmask:14:135 rt_sigreturn:15:139 rt_sigpending:127:136
    rt_sigtimedwait:128:137 rt_sigqueueinfo:129:138 rt_tgsigqueueinfo:297:240 rt_sigsuspend:130:133
    sigaltstack:131:132 signalfd:282: signalfd4:289:74 restart_syscall:219:128 kill:62:129 tkill:200:130
    tgkill:234:131 pidfd_send_signal:424:424 socket:41:198 socketpair:53:199 connect:42:203 accept:43:202
    accept4:288:242 bind:49:200 listen:50:201 shutdown:48:210 sendto:44:206 recvfrom:45:207 sendmsg:46:211
    recvmsg:47:212 sendmmsg:307:269 recvmmsg:299:243 getsockname:51:204 getpeername:52:205 setsockopt:54:208
    getsockopt:55:209 sched_yield:24:124 sched_getaffinity:204:123 sched_getparam:143:121 sched_getscheduler:145:120
    sched_getattr:315:275 sched_get_priority_max:146:125 sched_get_priority_min:147:126
    sched_rr_get_interval:148:127 getpriority:140:141 ioprio_get:252:31 getcpu:309:168
"""
# Modes, owners and times of files, and priorities of processes, which may be another user's.
_REACHING_OTHERS = """
    chmod:90: fchmod:91:52 fchmodat:268:53 fchmodat2:452:452 chown:92: fchown:93:55 lchown:94: fchownat:260:54
    utime:132: utimes:235: futimesat:261: utimensat:280:88 setxattr:188:5 lsetxattr:189:6 fsetxattr:190:7
    removexattr:197:14 lremovexattr:198:15 fremovexattr:199:16 setpriority:141:140 sched_setparam:142:118
    sched_setscheduler:144:119 sched_setaffinity:203:122 sched_setattr:314:274 ioprio_set:251:30
"""
_SHARED_MEMORY = "memfd_create:319:279"
# Libraries know what to do where calls from here on don't exist. `clone3` is one of those we can't allow: its flags lie
# behind a pointer, which a filter can't read.
_FIRST_RECENT = 424
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_PR_SET_DUMPABLE = 4

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_KILL = 0x80000000
_ALLOWED = [(_RETURN, 0, 0, 0x7FFF0000)]
_DENIED = [(_RETURN, 0, 0, 0x00050000 | errno.EPERM)]
# As on an older kernel, so libraries fall back to what they used before.
_UNSUPPORTED = [(_RETURN, 0, 0, 0x00050000 | errno.ENOSYS)]
# The x32 interface is a second way into the kernel on x86_64.
_X32 = 0x40000000


def knows_this_processor() -> bool:
    """Whether the filter supports this processor."""
    return os.uname().machine in _AUDIT_ARCH and struct.calcsize("P") == 8


def compile_filter(*, families: Sequence[int], shared_memory: bool, shares_host: bool) -> ctypes.Array[ctypes.c_char]:
    """Compile the filter to the kernel's format.

    `families` are the socket families that may be opened (pairs always can). `shared_memory` allows memory that no
    limit of a single process counts. With `shares_host`, changing modes, owners, times or priorities is refused,
    because Landlock does not control those.
    """
    program = _assemble_filter(os.uname().machine, families, shared_memory=shared_memory, shares_host=shares_host)
    return ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in program), 8 * len(program))


def install_filter(code: ctypes.Array[ctypes.c_char]) -> None:
    """Install a compiled filter for good, for this process and all it starts."""
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(code)))
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prctl(_PR_SET_SECCOMP, 2, ctypes.addressof(header))


def _assemble_filter(
    machine: str, families: Sequence[int], *, shared_memory: bool, shares_host: bool
) -> list[tuple[int, int, int, int]]:
    calls = _NEEDED + ("" if shares_host else _REACHING_OTHERS) + (_SHARED_MEMORY if shared_memory else "")
    numbers = _map_system_call_numbers(calls, machine)
    verdicts = dict.fromkeys(numbers.values(), _ALLOWED)
    verdicts[numbers["clone"]] = [(_LOAD, 0, 0, 16), (_ANY_BIT, 0, 1, ANY_NAMESPACE), *_DENIED, *_ALLOWED]
    # A process that is not dumpable hides its open files from the guard that measures them.
    verdicts[numbers["prctl"]] = [(_LOAD, 0, 0, 16), (_EQUAL, 0, 1, _PR_SET_DUMPABLE), *_DENIED, *_ALLOWED]
    verdicts[numbers["socket"]] = [(_LOAD, 0, 0, 16), *_build_instructions_allowing_values(families)]
    if shares_host:
        verdicts[numbers["prlimit64"]] = [(_LOAD, 0, 0, 16), *_build_instructions_allowing_values([0])]
    starts = {0: _DENIED, _FIRST_RECENT: _UNSUPPORTED, _X32: _DENIED}
    for number in sorted(verdicts):
        starts[number] = verdicts[number]
        starts[number + 1] = verdicts.get(number + 1, _UNSUPPORTED if number + 1 >= _FIRST_RECENT else _DENIED)
    # Neighbouring ranges with the same verdict become one, which keeps the program short.
    ranges = [(number, starts[number]) for number in sorted(starts)]
    ranges = [(n, verdict) for i, (n, verdict) in enumerate(ranges) if not i or verdict is not ranges[i - 1][1]]
    known = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, _AUDIT_ARCH[machine]), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    return [*known, *_build_binary_search(ranges)]


def _map_system_call_numbers(calls: str, machine: str) -> dict[str, int]:
    """Return the numbers of the calls that this processor has, by name."""
    column = 1 + list(_AUDIT_ARCH).index(machine)
    return {call[0]: int(call[column]) for call in (each.split(":") for each in calls.split()) if call[column]}


def _build_instructions_allowing_values(values: Sequence[int]) -> list[tuple[int, int, int, int]]:
    """Allow the call if the loaded value is among these."""
    return [*((_EQUAL, len(values) - i, 0, value) for i, value in enumerate(values)), *_DENIED, *_ALLOWED]


def _build_binary_search(
    starts: Sequence[tuple[int, list[tuple[int, int, int, int]]]],
) -> list[tuple[int, int, int, int]]:
    """Build a binary search over ranges of call numbers: the kernel runs the filter for every call."""
    if len(starts) == 1:
        return starts[0][1]
    middle = len(starts) // 2
    low, high = _build_binary_search(starts[:middle]), _build_binary_search(starts[middle:])
    return [(_AT_LEAST, len(low), 0, starts[middle][0]), *low, *high]
