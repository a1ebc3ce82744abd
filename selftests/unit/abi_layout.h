/* SPDX-License-Identifier: BSD-3-Clause */
/* Every shared structure with the size and offsets that the ABI fixes, in bytes. */
#ifndef ABI_LAYOUT_H
#define ABI_LAYOUT_H

#include <stddef.h>
#include <tcp_qp/nupa_accel.h>
#include <tcp_qp/nupa_hw.h>
#include <tcp_qp/nupa_pool.h>
#include <tcp_qp/nupa_post_hw.h>
#include <tcp_qp/tcp_bth.h>
#include <tcp_qp/tcp_qp.h>

#define ABI_SIZES(X) \
	X(struct tcp_bth_head, 8) X(struct tcp_bth_v0, 24) X(struct tcp_bth_v1, 16) X(struct tcp_bth_reth, 16) \
	X(struct nupa_regs, 256) X(struct nupa_ring_ctl, 128) X(struct nupa_rxq_ctl, 128) X(struct nupa_admin_ctl, 192) \
	X(struct nupa_tx_ctx, 16) X(struct nupa_tx_buf, 16) X(union nupa_tx_entry, 16) X(struct nupa_rx_fill, 8) \
	X(struct nupa_rx_comp, 32) X(struct nupa_flow, 40) X(struct nupa_cmd_queue, 56) X(struct nupa_cmd_rx_mode, 20) \
	X(struct nupa_cmd_rss, 48) X(struct nupa_cmd_steer, 48) X(struct nupa_cmd_stats, 16) X(struct nupa_cmd_mr, 40) \
	X(struct nupa_cmd_window, 24) X(struct nupa_accel_regs, 256) X(struct nupa_accel_cmd, 64) X(struct nupa_accel_comp, 16) \
	X(struct nupa_accel_info, 56) X(struct nupa_accel_call, 88) X(struct nupa_accel_submit, 16) X(struct nupa_pool_info, 56) X(struct nupa_pool_alloc, 16) X(struct nupa_pool_offer, 16) X(struct nupa_pool_take, 16) \
	X(struct nupa_cmd_qp, 112) X(struct nupa_post, 64) X(struct nupa_qp_reads, 1024) X(struct nupa_qp_send, 24) X(struct nupa_qp_sends, 56) X(struct nupa_qp_shadow, 104) X(struct nupa_cmd_cq, 32) X(struct nupa_cq_ctl, 16) X(struct nupa_cmd_srq, 32) X(struct nupa_srq_ctl, 16) X(struct nupa_admin_cmd, 128) X(struct nupa_admin_comp, 16) \
	X(struct tcp_qp_attach_req, 16) X(struct tcp_qp_attach_resp, 16) X(struct tcp_qp_info, 112) X(struct tcp_qp_cq_call, 16) X(struct tcp_qp_sq, 32) \
	X(struct tcp_qp_stream_info, 48)

#define ABI_OFFSETS(X) \
	X(struct nupa_regs, magic, 0) X(struct nupa_regs, features, 8) X(struct nupa_regs, status, 12) \
	X(struct nupa_regs, mac, 16) X(struct nupa_regs, queue_pairs, 22) X(struct nupa_regs, link_mbps, 24) \
	X(struct nupa_regs, mtu_max, 28) X(struct nupa_regs, qps_max, 32) X(struct nupa_regs, mrs_max, 36) \
	X(struct nupa_regs, reset_ack, 40) X(struct nupa_regs, event_seq, 44) X(struct nupa_regs, port_id, 48) X(struct nupa_regs, beat, 52) \
	X(struct nupa_regs, control, 128) X(struct nupa_regs, control_gen, 132) \
	X(struct nupa_ring_ctl, prod, 0) X(struct nupa_ring_ctl, irq_event, 4) X(struct nupa_ring_ctl, cons, 64) \
	X(struct nupa_ring_ctl, db_event, 68) \
	X(struct nupa_rxq_ctl, fill_prod, 0) X(struct nupa_rxq_ctl, comp_cons, 4) X(struct nupa_rxq_ctl, irq_event, 8) X(struct nupa_rxq_ctl, long_prod, 12) \
	X(struct nupa_rxq_ctl, fill_cons, 64) X(struct nupa_rxq_ctl, comp_prod, 68) X(struct nupa_rxq_ctl, long_cons, 72) X(struct nupa_rxq_ctl, signalled, 76) X(struct nupa_rxq_ctl, hurry, 80) X(struct nupa_rxq_ctl, seen, 16) \
	X(struct nupa_admin_ctl, ring_addr, 128) X(struct nupa_admin_ctl, comp_addr, 136) \
	X(struct nupa_tx_ctx, flags, 0) X(struct nupa_tx_ctx, bufs, 2) X(struct nupa_tx_ctx, bytes, 4) \
	X(struct nupa_tx_ctx, mss, 8) X(struct nupa_tx_ctx, header_bytes, 10) X(struct nupa_tx_ctx, csum_start, 12) \
	X(struct nupa_tx_ctx, csum_offset, 14) X(struct nupa_tx_buf, addr, 0) X(struct nupa_tx_buf, bytes, 8) \
	X(struct nupa_rx_comp, flags, 0) X(struct nupa_rx_comp, bufs, 2) X(struct nupa_rx_comp, header_bytes, 4) \
	X(struct nupa_rx_comp, gso_size, 6) X(struct nupa_rx_comp, gso_segs, 8) X(struct nupa_rx_comp, long_bufs, 10) X(struct nupa_rx_comp, payload_bytes, 12) \
	X(struct nupa_rx_comp, hash, 16) X(struct nupa_rx_comp, qpn, 20) X(struct nupa_rx_comp, cq, 24) \
	X(struct nupa_flow, family, 0) X(struct nupa_flow, sport, 4) X(struct nupa_flow, dport, 6) \
	X(struct nupa_flow, saddr, 8) X(struct nupa_flow, daddr, 24) \
	X(struct nupa_cmd_queue, slot_addr, 16) X(struct nupa_cmd_queue, entries, 24) X(struct nupa_cmd_queue, buf_bytes, 32) \
	X(struct nupa_cmd_queue, long_ring_addr, 40) X(struct nupa_cmd_queue, long_entries, 48) X(struct nupa_cmd_queue, long_buf_bytes, 52) \
	X(struct nupa_cmd_rx_mode, mac, 8) X(struct nupa_cmd_rx_mode, hold_us, 14) X(struct nupa_cmd_rx_mode, run4_max_bytes, 16) \
	X(struct nupa_cmd_mr, iova, 0) X(struct nupa_cmd_mr, bytes, 8) X(struct nupa_cmd_mr, table_addr, 16) \
	X(struct nupa_cmd_mr, pages, 24) X(struct nupa_cmd_mr, pd, 28) X(struct nupa_cmd_mr, access, 32) \
	X(struct nupa_cmd_mr, page_shift, 36) \
	X(struct nupa_cmd_qp, pd, 40) X(struct nupa_cmd_qp, flags, 44) X(struct nupa_cmd_qp, rcv_nxt, 48) \
	X(struct nupa_cmd_qp, rcv_wscale, 52) X(struct nupa_cmd_qp, rq_log2_bytes, 53) X(struct nupa_cmd_qp, rq_sge_max, 54) \
	X(struct nupa_cmd_qp, rq_mask, 56) X(struct nupa_cmd_qp, rq_base, 60) X(struct nupa_cmd_qp, rq_pages, 64) \
	X(struct nupa_cmd_qp, rq_table_addr, 72) X(struct nupa_cmd_qp, shadow_addr, 80) \
	X(struct nupa_cmd_qp, post_addr, 88) X(struct nupa_cmd_qp, post_pages, 96) X(struct nupa_cmd_qp, cq, 100) X(struct nupa_cmd_qp, srq, 104) X(struct nupa_cmd_qp, send_cq, 108) \
	X(struct nupa_qp_shadow, turn, 16) X(struct nupa_qp_shadow, done, 20) X(struct nupa_qp_shadow, writes, 24) X(struct nupa_qp_shadow, solicited, 28) X(struct nupa_qp_shadow, last, 32) X(struct nupa_qp_shadow, late, 36) X(struct nupa_qp_shadow, awaits, 40) X(struct nupa_qp_shadow, later, 44) \
	X(struct nupa_qp_shadow, sends, 48) X(struct nupa_qp_sends, completed, 4) X(struct nupa_qp_sends, send, 8) X(struct nupa_qp_send, end, 8) X(struct nupa_qp_send, bytes, 12) X(struct nupa_qp_send, opcode, 16) \
	X(struct nupa_cmd_cq, ctl_addr, 8) X(struct nupa_cmd_cq, pages, 16) X(struct nupa_cmd_cq, mask, 20) X(struct nupa_cmd_cq, flags, 24) X(struct nupa_cq_ctl, prod, 4) X(struct nupa_cq_ctl, waiting, 8) \
	X(struct nupa_cmd_srq, ctl_addr, 8) X(struct nupa_cmd_srq, pages, 16) X(struct nupa_cmd_srq, mask, 20) X(struct nupa_cmd_srq, sge_max, 24) X(struct nupa_cmd_srq, log2_bytes, 26) X(struct nupa_srq_ctl, owner, 0) X(struct nupa_srq_ctl, index, 4) \
	X(struct nupa_post, placed, 4) X(struct nupa_post, seq, 8) X(struct nupa_post, bytes, 12) X(struct nupa_post, offset, 16) \
	X(struct nupa_cmd_window, bytes, 8) X(struct nupa_cmd_window, memory, 16) \
	X(struct nupa_accel_regs, id, 8) X(struct nupa_accel_regs, memory_at, 16) X(struct nupa_accel_regs, memory_bytes, 24) \
	X(struct nupa_accel_regs, reset_ack, 32) X(struct nupa_accel_regs, bell, 40) X(struct nupa_accel_regs, control, 128) \
	X(struct nupa_accel_cmd, value, 4) X(struct nupa_accel_cmd, to, 8) X(struct nupa_accel_cmd, from, 16) X(struct nupa_accel_cmd, other, 24) \
	X(struct nupa_accel_cmd, bytes, 32) X(struct nupa_accel_cmd, limit_ms, 40) X(struct nupa_accel_cmd, tag, 44) \
	X(struct nupa_accel_comp, result, 8) X(struct nupa_accel_call, to, 8) X(struct nupa_accel_call, start, 56) X(struct nupa_accel_call, result, 80) \
	X(struct nupa_pool_info, leased_bytes, 16) X(struct nupa_pool_info, kernel_maps, 40) X(struct nupa_pool_info, pool, 48) X(struct nupa_pool_offer, token, 8) X(struct nupa_pool_take, bytes, 8) \
	X(struct tcp_qp_sq, bytes, 8) X(struct tcp_qp_sq, slots, 16) X(struct tcp_qp_sq, inline_bytes, 20) X(struct tcp_qp_sq, flags, 24) \
	X(struct tcp_qp_cq_call, qpn, 4) X(struct tcp_qp_cq_call, timeout_ns, 8) \
	X(struct nupa_admin_cmd, op, 0) X(struct nupa_admin_cmd, id, 4) X(struct nupa_admin_cmd, qp, 8) \
	X(struct nupa_admin_comp, status, 0) X(struct nupa_admin_comp, id, 4) X(struct nupa_admin_comp, value, 8) \
	X(struct tcp_qp_info, tx_messages, 16) X(struct tcp_qp_info, tx_credit_waits, 104) \
	X(struct tcp_qp_stream_info, tx_other_bytes, 8) X(struct tcp_qp_stream_info, pool_bytes, 16) \
	X(struct tcp_qp_stream_info, rx_placed_bytes, 24) X(struct tcp_qp_stream_info, rx_rescued_bytes, 40)

struct abi_entry {
	const char *what;
	size_t found;
	size_t fixed;
};

#define ABI_SIZE_ENTRY(type, fixed) { "sizeof " #type, sizeof(type), fixed },
#define ABI_OFFSET_ENTRY(type, field, fixed) { #type "." #field, offsetof(type, field), fixed },

#ifdef __cplusplus
extern "C" {
#endif
/* What a C11 compiler makes of it. */
extern const struct abi_entry abi_c_entries[];
extern const size_t abi_c_count;
/* One option through the C build of builder and parser. */
enum tcp_bth_error abi_c_round_trip(const struct tcp_bth *in, __u32 seq, __u32 payload, struct tcp_bth *out);
#ifdef __cplusplus
}
#endif

#endif
