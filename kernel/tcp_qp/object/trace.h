/* SPDX-License-Identifier: GPL-2.0 */
/* Tracepoints: /sys/kernel/tracing/events/tcp_qp. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM tcp_qp

#if !defined(TQP_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define TQP_TRACE_H

#include <linux/tracepoint.h>

TRACE_EVENT(tqp_attach,
	TP_PROTO(u32 qpn, u32 engine, u32 reason, u32 wire, u32 mss),
	TP_ARGS(qpn, engine, reason, wire, mss),
	TP_STRUCT__entry(
		__field(u32, qpn)
		__field(u32, engine)
		__field(u32, reason)
		__field(u32, wire)
		__field(u32, mss)
	),
	TP_fast_assign(
		__entry->qpn = qpn;
		__entry->engine = engine;
		__entry->reason = reason;
		__entry->wire = wire;
		__entry->mss = mss;
	),
	TP_printk("qpn=%u engine=%u reason=%u wire=%u mss=%u", __entry->qpn, __entry->engine,
		  __entry->reason, __entry->wire, __entry->mss)
);

DECLARE_EVENT_CLASS(tqp_message,
	TP_PROTO(u32 qpn, u16 msn, u8 opcode, u32 start_seq, u32 length),
	TP_ARGS(qpn, msn, opcode, start_seq, length),
	TP_STRUCT__entry(
		__field(u32, qpn)
		__field(u32, start_seq)
		__field(u32, length)
		__field(u16, msn)
		__field(u8, opcode)
	),
	TP_fast_assign(
		__entry->qpn = qpn;
		__entry->start_seq = start_seq;
		__entry->length = length;
		__entry->msn = msn;
		__entry->opcode = opcode;
	),
	TP_printk("qpn=%u msn=%u opcode=0x%02x start_seq=%u length=%u", __entry->qpn, __entry->msn,
		  __entry->opcode, __entry->start_seq, __entry->length)
);

/* a message entered the log, just before its bytes go to TCP */
DEFINE_EVENT(tqp_message, tqp_tx_message,
	TP_PROTO(u32 qpn, u16 msn, u8 opcode, u32 start_seq, u32 length),
	TP_ARGS(qpn, msn, opcode, start_seq, length));

/* the last byte of a message was received in order */
DEFINE_EVENT(tqp_message, tqp_rx_message,
	TP_PROTO(u32 qpn, u16 msn, u8 opcode, u32 start_seq, u32 length),
	TP_ARGS(qpn, msn, opcode, start_seq, length));

DECLARE_EVENT_CLASS(tqp_note,
	TP_PROTO(u32 qpn, u32 value),
	TP_ARGS(qpn, value),
	TP_STRUCT__entry(
		__field(u32, qpn)
		__field(u32, value)
	),
	TP_fast_assign(
		__entry->qpn = qpn;
		__entry->value = value;
	),
	TP_printk("qpn=%u value=%u", __entry->qpn, __entry->value)
);

/* value: msn that waits for a receive */
DEFINE_EVENT(tqp_note, tqp_rx_stall, TP_PROTO(u32 qpn, u32 value), TP_ARGS(qpn, value));
/* value: msn that waits for credit */
DEFINE_EVENT(tqp_note, tqp_tx_credit_wait, TP_PROTO(u32 qpn, u32 value), TP_ARGS(qpn, value));
/* value: enum tcp_qp_reason */
DEFINE_EVENT(tqp_note, tqp_conn_fail, TP_PROTO(u32 qpn, u32 value), TP_ARGS(qpn, value));

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH object
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
