/* SPDX-License-Identifier: BSD-3-Clause */
/* The compiled BPF program as bytes of the helper. */
	.section .rodata
	.balign 8
	.globl tcpqp_bpf_object
tcpqp_bpf_object:
	.incbin TCPQP_BPF_OBJECT
	.globl tcpqp_bpf_object_end
tcpqp_bpf_object_end:
	.byte 0
	.section .note.GNU-stack,"",%progbits
