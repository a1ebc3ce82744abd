# SPDX-License-Identifier: BSD-3-Clause
"""Storage and file systems of the kernel find an RDMA device, and are refused: its queues are those of processes."""

import pytest

from harness.guests import Guests
from harness.needs import Needs

NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), programs=("selftests/vm/programs/qp_exchange",), setup="full")
pytestmark = pytest.mark.needs(NEEDS)
CLIENTS = "ib_ipoib ib_iser ib_isert ib_srp ib_srpt nvme-rdma nvmet-rdma rpcrdma rds_rdma smc 9pnet_rdma"
HOST_ID = "11111111-2222-3333-4444-555555555555"
HOST = f"nqn.2014-08.org.nvmexpress:uuid:{HOST_ID}"
TARGET = """
port=/sys/kernel/config/nvmet/ports/1
mount -t configfs none /sys/kernel/config 2>/dev/null
mkdir $port && echo rdma >$port/addr_trtype && echo ipv4 >$port/addr_adrfam && echo $ADDRESS >$port/addr_traddr && echo 4420 >$port/addr_trsvcid
mkdir /sys/kernel/config/nvmet/subsystems/nothing && echo 1 >/sys/kernel/config/nvmet/subsystems/nothing/attr_allow_any_host
ln -s /sys/kernel/config/nvmet/subsystems/nothing $port/subsystems/nothing
"""
NO_TARGET = "cd /sys/kernel/config/nvmet; rm -f ports/1/subsystems/nothing; rmdir ports/1 subsystems/nothing"


def test_are_refused(t: Guests) -> None:
    """They look at the device when they are loaded, and ask it for a protection domain when somebody connects; nothing is left of that."""
    t.cluster.run_all(f"for m in {CLIENTS}; do modprobe $m || exit 1; done", 60, check=True)
    there = t.nodes[1].ip4
    t.run(1, TARGET.replace("$ADDRESS", there))
    connect = f"transport=rdma,traddr={there},trsvcid=4420,nqn=nothing,hostnqn={HOST},hostid={HOST_ID}"
    t.fails(0, f"echo {connect} >/dev/nvme-fabrics", 60)
    # what nvme-rdma says where ib_alloc_pd() fails, which is after the address was resolved to the device
    t.check("no client data found" in t.kernel_log(0), "the NVMe connect ended before the device was asked")
    t.fails(0, f"mkdir -p /tmp/far; mount -t 9p -o trans=rdma,port=4420 {there} /tmp/far", 60)
    t.run(1, NO_TARGET)
    t.cluster.run_all(f"for m in {CLIENTS}; do modprobe -r $m || exit 1; done", 60, check=True)
