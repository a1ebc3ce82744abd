# SPDX-License-Identifier: BSD-3-Clause
"""The command line of tools/vm/nupa-vm."""

import argparse
import os
import shlex
import signal
import sys
from pathlib import Path

from . import accelerator, qemu, switch
from .cluster import Cluster, KernelComplaint, TimeLimit
from .node import CommandFailed, Job, NodeDead
from .paths import SetupError
from .shell import attach

EXIT_SPLAT = 3
EXIT_DEAD = 4
EXIT_TIME = 5
EXIT_SETUP = 6


def main(argv: list[str]) -> int:
    args = _parser().parse_args(argv)
    for name, value in (("NUPA_KERNEL", args.kernel), ("NUPA_MODULES", args.modules)):
        if value:
            os.environ[name] = str(Path(value).resolve())
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda got, _: sys.exit(128 + got))
    try:
        return _run(args)
    except KernelComplaint as problem:
        return _report(problem, EXIT_SPLAT)
    except (NodeDead, CommandFailed) as problem:
        return _report(problem, EXIT_DEAD)
    except TimeLimit as problem:
        return _report(problem, EXIT_TIME)
    except SetupError as problem:
        return _report(problem, EXIT_SETUP)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _report(problem: Exception, status: int) -> int:
    print(f"nupa-vm: FAIL: {problem}", file=sys.stderr)
    return status


def _run(args: argparse.Namespace) -> int:
    commands = _commands(args)
    with Cluster(
        args.nodes, mem_mb=args.mem, cpus=args.cpus, topology=args.topology, with_switch=not args.no_switch, setup=args.setup,
        mtu=args.mtu, wanted_accel=args.accel, icount=args.icount, interactive=args.interactive, time_limit_s=args.time,
        job_limit_s=args.time, results=args.results, append=args.append, switch_args=shlex.split(args.switch_args),
        qemu_args=shlex.split(args.qemu_args), accelerator_mib=args.accelerator,
        pool_mib=args.pool_mib if args.mode == "cxl" else 0,
    ) as cluster:  # fmt: skip
        status = _host_command(cluster, args.host_cmd) if args.host_cmd else 0
        jobs = [cluster.node[n].start(command, name="main") for n, command in sorted(commands.items())]
        if args.interactive:
            attach([cluster.run_dir / f"shell{n.index}" for n in cluster.node], cluster)
            return status
        for job in [j for j in jobs if args.until in (None, j.node.index)]:
            status = _finish(cluster, job) or status
    return status


def _commands(args: argparse.Namespace) -> dict[int, str]:
    """The shell command of each node that has one."""
    common = " ".join(args.command)
    if args.script:
        common = _script_command(Path(args.script))
    commands = dict.fromkeys(range(args.nodes), common) if common else {}
    for item in args.node_cmd:
        node, colon, command = item.partition(":")
        if not colon or not node.isdigit() or int(node) >= args.nodes:
            raise SetupError(f"--node-cmd {item!r}: expected N:COMMAND with N below {args.nodes}")
        commands[int(node)] = command
    if args.until is not None and args.until not in commands:
        raise SetupError(f"--until {args.until}: that node has no command")
    if not commands and not args.interactive and not args.host_cmd:
        raise SetupError("nothing to run: give a command, --script, --node-cmd, --host-cmd or --interactive")
    return commands


def _script_command(script: Path) -> str:
    """Carries the script over by value: a guest has its own /tmp."""
    text = script.read_text()
    if not text.startswith("#!"):
        return text
    return f"cat >/run/script <<'NUPA_VM_END'\n{text}\nNUPA_VM_END\nchmod +x /run/script; exec /run/script"


def _host_command(cluster: Cluster, command: str) -> int:
    """Runs on the host while the guests are up; it reaches the switch by $CONTROL."""
    env = {**os.environ, "RESULTS": str(cluster.results), "NODES": str(len(cluster.node))}
    if cluster.switch:
        env["CONTROL"] = str(cluster.switch.control)
    child = cluster.children.start(["/bin/sh", "-c", command], env=env)
    try:
        cluster.wait(lambda: child.poll() is not None, cluster.job_limit_s, "host command")
    finally:
        cluster.children.stop(child)
    cluster.say(f"host command ended with {child.returncode}")
    return child.returncode


def _finish(cluster: Cluster, job: Job) -> int:
    result = job.wait()
    where = job.node.results
    for kind, text in (("stdout", result.stdout), ("stderr", result.stderr)):
        (where / kind).write_text(text)
        stream = sys.stdout if kind == "stdout" else sys.stderr
        stream.writelines(f"{job.node.name}| {line}\n" for line in text.splitlines())
        stream.flush()
    (where / "exit").write_text(f"{result.status}\n")
    cluster.say(f"{job.node.name} ended with {result.status}")
    return result.status


def _parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="nupa-vm", description="Boot guests on a NUPA switch and run commands in them.")
    p.add_argument("--nodes", type=int, default=2, help="number of guests (default 2)")
    p.add_argument("--mem", type=int, default=1024, metavar="MIB", help=f"memory of each (default 1024; at most {qemu.MEM_MAX_MB} on a switch)")
    p.add_argument("--cpus", type=int, default=1, help="virtual CPUs of each (default 1)")
    p.add_argument("--topology", choices=qemu.TOPOLOGIES, default="cxl", help="where the NUPA device hangs (default cxl)")
    p.add_argument("--no-switch", action="store_true", help="guests without a fabric")
    p.add_argument("--setup", choices=("auto", "full", "none"), default="auto", help="load our modules and bring nupa0 up (default auto)")
    p.add_argument("--mtu", type=int, help="MTU of nupa0")
    p.add_argument("--accel", choices=("auto", "kvm", "tcg"), default="auto")
    p.add_argument("--accelerator", type=int, nargs="?", const=accelerator.MIB_DEFAULT, default=0, metavar="MIB",
                   help=f"an accelerator to test with in each guest, MIB of BAR (default {accelerator.MIB_DEFAULT})")  # fmt: skip
    p.add_argument("--mode", choices=("pcie", "cxl"), default="pcie",
                   help="the switch's (default pcie); cxl: a pool of memory, a window to it in each guest")  # fmt: skip
    p.add_argument("--pool-mib", type=int, default=switch.POOL_MIB_DEFAULT, metavar="MIB",
                   help=f"of the pool, with --mode cxl (default {switch.POOL_MIB_DEFAULT})")  # fmt: skip
    p.add_argument("--icount", action="store_true", help="guest time counts instructions: noise-free measures of CPU cost")
    p.add_argument("--time", type=float, default=180, metavar="S", help="time limit of the whole run (default 180)")
    p.add_argument("--results", metavar="DIR", help="where results go (default build/vm/run-*; build/vm/last points there)")
    p.add_argument("--kernel", metavar="IMAGE", help="bzImage to boot (default: Debian's newest 6.12)")
    p.add_argument("--modules", metavar="DIR", help="our modules built for it (default build/kernel)")
    p.add_argument("--append", default="", help="more kernel command line")
    p.add_argument("--switch-args", default="", help="more arguments for nupa_switch, one string")
    p.add_argument("--qemu-args", default="", help="more arguments for QEMU, one string")
    p.add_argument("--host-cmd", help="shell command for the host once the nodes are up ($CONTROL: the switch's control socket)")
    p.add_argument("--node-cmd", action="append", default=[], metavar="N:CMD", help="shell command for node N; may be repeated")
    p.add_argument("--script", help="shell script for all nodes without a --node-cmd")
    p.add_argument("--until", type=int, metavar="N", help="the run ends when node N's command ends")
    p.add_argument("--interactive", action="store_true", help="a shell on each node; Ctrl-] and a digit switches, Ctrl-] q ends")
    p.add_argument("command", nargs="*", help="shell command for all nodes without a --node-cmd")
    return p
