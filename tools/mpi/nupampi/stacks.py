# SPDX-License-Identifier: BSD-3-Clause
"""The ways in which an MPI reaches the other guests: over queue pairs, and over TCP on the same netdev."""

from dataclasses import dataclass, field

NETDEV, DEVICE = "nupa0", "tcpqp0:1"
OMPI_UCX = "--mca pml ucx --mca osc ucx --mca opal_common_ucx_devices any --mca opal_common_ucx_tls any"
OMPI_OFI = "--mca pml cm --mca mtl ofi --mca osc pt2pt --mca mtl_ofi_provider_include"
# As docs/mpi.md says: one connection to each peer, nothing long into a shared receive queue, and no short message that waits for its ACK.
UCX_QP = {
    "UCX_NET_DEVICES": DEVICE,
    "UCX_TLS": "rc_verbs,ud_verbs,self",
    "UCX_IB_NUM_PATHS": "1",
    "UCX_ZCOPY_THRESH": "8k",
    "UCX_RNDV_SEND_NBR_THRESH": "16k",
}
UCX_TCP = {"UCX_NET_DEVICES": NETDEV, "UCX_TLS": "tcp,self"}
# MPICH 4.0 does not end over UCX's tcp (docs/known-faults.md).  Longer than ranks are apart, shorter than a person waits.
LEAVES = {"CHECKED_FINALIZE_S": "10"}


@dataclass(frozen=True)
class Stack:
    name: str
    mpi: str  # "openmpi" or "mpich": Debian's suffix of commands
    placed: bool  # over queue pairs, whose bytes the switch places
    options: str = ""
    environment: dict[str, str] = field(default_factory=dict, hash=False)

    def command(self, hosts: list[str], agent: str, program: str) -> str:
        """The launch of one rank on each host; @agent is called as ssh would be."""
        if self.mpi == "openmpi":
            words = [f"mpirun.openmpi --allow-run-as-root --host {','.join(hosts)} -np {len(hosts)} --leave-session-attached",
                     f"--mca plm_rsh_agent {agent} --mca plm_rsh_no_tree_spawn 1 --mca oob_tcp_if_include {NETDEV}",
                     *(f"-x {name}='{value}'" for name, value in self.environment.items())]  # fmt: skip
        else:
            words = [f"mpiexec.hydra -launcher rsh -launcher-exec {agent} -iface {NETDEV} -hosts {','.join(hosts)} -n {len(hosts)}",
                     *(f"-genv {name} '{value}'" for name, value in self.environment.items())]  # fmt: skip
        return " ".join([*words, self.options, program])


STACKS = (
    Stack("openmpi-ucx", "openmpi", True, OMPI_UCX, UCX_QP),
    Stack("openmpi-ucx-tcp", "openmpi", False, OMPI_UCX, UCX_TCP),
    Stack("openmpi-ofi", "openmpi", True, f"{OMPI_OFI} 'verbs;ofi_rxm'", {"FI_VERBS_IFACE": NETDEV}),
    Stack("openmpi-ofi-tcp", "openmpi", False, f"{OMPI_OFI} 'tcp;ofi_rxm'", {"FI_TCP_IFACE": NETDEV}),
    Stack("openmpi-tcp", "openmpi", False, f"--mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include {NETDEV}"),
    Stack("mpich-ucx", "mpich", True, "", UCX_QP),
    Stack("mpich-ucx-tcp", "mpich", False, "", UCX_TCP | LEAVES),
)
BY_NAME = {stack.name: stack for stack in STACKS}


def rivals(stack: Stack) -> list[Stack]:
    """The same MPI over TCP: the fastest of them counts."""
    return [other for other in STACKS if other.mpi == stack.mpi and not other.placed]
