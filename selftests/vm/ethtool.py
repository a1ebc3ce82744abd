# SPDX-License-Identifier: BSD-3-Clause
"""What ethtool shows and changes, with traffic after each change."""

import json

import pytest

from harness.guests import Guests
from harness.traffic import copy_file, free_port, iperf
from vm.fabric import NEEDS  # the same guests

pytestmark = [pytest.mark.needs(NEEDS), pytest.mark.beside]


def test_identity(t: Guests) -> None:
    text = t.run(0, "ethtool -i nupa0")
    t.check("driver: nupa_dev" in text, text)
    text = t.run(0, "ethtool nupa0")
    t.check("Link detected: yes" in text, text)


def test_counters_count(t: Guests) -> None:
    before = t.stat(0, "rx_packets"), t.switch_stats(0)["rx_packets"]
    t.run(1, "ping -q -c 10 -i 0.01 $PEER")
    after = t.stat(0, "rx_packets"), t.switch_stats(0)["rx_packets"]
    for name, old, new in zip(("driver", "switch"), before, after):
        t.check(new - old >= 10, f"{name}: rx_packets went from {old} to {new} with ten pings")


def test_offloads_off_and_on(t: Guests) -> None:
    # ethtool -K name: the name that -k shows
    features = {
        "tso": "tcp-segmentation-offload", "rx-gro-hw": "rx-gro-hw", "gro": "generic-receive-offload", "rx": "rx-checksumming",
        "tx": "tx-checksumming", "sg": "scatter-gather",
    }  # fmt: skip
    shown = t.run(0, "ethtool -k nupa0")
    for feature, long_name in features.items():
        if f"{long_name}: on [fixed]" in shown or f"{long_name}: off [fixed]" in shown:
            continue
        t.cluster.run_all(f"ethtool -K nupa0 {feature} off", check=True)
        copy_file(t, "/mnt/t/random", mib=1)
        t.cluster.run_all(f"ethtool -K nupa0 {feature} on tso on", check=True)
    copy_file(t, "/mnt/t/random", mib=1)


def test_hardware_gro_merges(t: Guests) -> None:
    before = t.switch_stats(0)
    iperf(t, "")
    counted = t.switch_counted(0, before)
    t.check(counted["rx_segments"] > 2 * counted["rx_packets"], f"{counted['rx_segments']} segments came up as {counted['rx_packets']} packets")


def _receive_wait(t: Guests) -> str:
    return t.run(0, "ethtool -c nupa0 | awk '$1 == \"rx-usecs:\" { print $2 }'").strip()


def test_receive_wait(t: Guests) -> None:
    """How long placed payload may wait for more of its message; what it does is seen in switch.hold and vm/exchange."""
    was = _receive_wait(t)
    for usecs in ("0", "500", "10000"):
        t.run(0, f"ethtool -C nupa0 rx-usecs {usecs}")
        t.check(_receive_wait(t) == usecs, f"{usecs} is not shown, but {_receive_wait(t)}")
        t.run(0, "ping -q -c 3 -i 0.01 $PEER")
    t.fails(0, "ethtool -C nupa0 rx-usecs 10001")
    if was:
        t.run(0, f"ethtool -C nupa0 rx-usecs {was}")


def test_ring_sizes(t: Guests) -> None:
    for size in (64, 1024, 256):
        t.run(0, f"ethtool -G nupa0 rx {size} tx {size}")
        iperf(t, "")
    t.fails(0, "ethtool -G nupa0 rx 32768")
    t.fails(0, "ethtool -G nupa0 tx 8")
    t.run(0, "ping -q -c 3 -i 0.01 $PEER")


def test_channels(t: Guests) -> None:
    text = t.run(0, "ethtool -l nupa0")
    most = max(int(line.split()[1]) for line in text.splitlines() if line.startswith("Combined:"))
    for count in sorted({1, 2, most}):
        if count > most:
            continue
        t.run(0, f"ethtool -L nupa0 combined {count}")
        iperf(t, "-P 4")
    t.fails(0, f"ethtool -L nupa0 combined {most + 1}")
    t.fails(0, "ethtool -L nupa0 combined 0")


def test_rule_deleted_while_down(t: Guests) -> None:
    """The switch forgets it, too: its flow would go to a queue that is no more."""
    port = free_port()
    add = f"ethtool -N nupa0 flow-type tcp4 dst-port {port} action 1 loc 5"
    had = t.run(0, "ethtool -l nupa0 | awk '/^Combined/ {n = $2} END {print n}'").strip()
    t.run(0, f"ethtool -K nupa0 ntuple on; ethtool -L nupa0 combined 2; {add}")
    t.run(0, "ip link set nupa0 down; ethtool -N nupa0 delete 5; ethtool -L nupa0 combined 1; ip link set nupa0 up")
    t.run(0, "ip -6 address replace $IP6/64 dev nupa0 nodad")
    dropped = t.stat(0, "switch_rx_drop_no_queue")
    server = t.start(0, f"exec iperf3 -s -1 -p {port}", 60)
    t.wait_listening(0, port)
    t.run(1, f"iperf3 -c $PEER -p {port} -n 1M", 30)
    t.check(server.wait().ok, "no connection")
    t.equal(t.stat(0, "switch_rx_drop_no_queue"), dropped, "packets for a queue that is no more")
    t.run(0, f"ethtool -L nupa0 combined 2; {add} && ethtool -N nupa0 delete 5; ethtool -L nupa0 combined {had}")


def test_statistics_as_json(t: Guests) -> None:
    stats = json.loads(t.run(1, "ip -j -s link show nupa0"))[0]["stats64"]
    for direction in ("rx", "tx"):
        t.check(stats[direction]["packets"] > 0, f"{direction}: {stats[direction]}")
        t.equal(stats[direction]["errors"], 0, f"{direction} errors")
