/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-3-Clause */
/*
 * The tcp_bth option as bytes: the one builder and the one parser.
 */
#ifndef TCP_QP_TCP_BTH_OPTION_H
#define TCP_QP_TCP_BTH_OPTION_H

#include <tcp_qp/tcp_bth.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * tcp_bth_opt_bytes() - length of the option that tcp_bth_build() will write.
 * Always a multiple of four, at most TCP_BTH_OPT_MAX_BYTES.
 */
static inline unsigned int tcp_bth_opt_bytes(const struct tcp_bth *b)
{
	if (b->ver == 0)
		return TCP_BTH_HEAD_BYTES + TCP_BTH_V0_BYTES + b->ext_bytes;
	return TCP_BTH_HEAD_BYTES + TCP_BTH_V1_BYTES + b->ext_bytes +
	       (b->flags & TCP_BTH_F_TIMESTAMP ? (unsigned int)TCP_BTH_TS_BYTES : 0u);
}

/**
 * tcp_bth_build() - write one option at @opt, which has room for
 * tcp_bth_opt_bytes(@b).  Returns the bytes written.
 */
static inline unsigned int tcp_bth_build(__u8 *opt, const struct tcp_bth *b)
{
	unsigned int len = tcp_bth_opt_bytes(b);
	__u8 *p = opt + sizeof(struct tcp_bth_head);

	opt[0] = TCP_BTH_KIND;
	opt[1] = (__u8)len;
	tcp_bth_put16(opt + 2, TCP_BTH_EXID);
	opt[4] = (__u8)(b->flags | b->ver);
	opt[5] = b->opcode;
	tcp_bth_put16(opt + 6, b->msn);
	if (b->ver == 0) {
		tcp_bth_put32(p, b->mbo << 8 | b->segno);
		tcp_bth_put32(p + 4, b->flags & TCP_BTH_F_ICRC ? b->icrc : 0);
		p += 8;
	} else {
		tcp_bth_put32(p, b->start_seq);
		tcp_bth_put32(p + 4, b->length);
		p += 8;
	}
	if (b->flags & TCP_BTH_F_TIMESTAMP) {
		tcp_bth_put32(p, b->tsval);
		tcp_bth_put32(p + 4, b->tsecr);
		p += TCP_BTH_TS_BYTES;
	} else if (b->ver == 0) {
		memset(p, 0, TCP_BTH_TS_BYTES);
		p += TCP_BTH_TS_BYTES;
	}
	if (b->ext_bytes == TCP_BTH_EXT4_BYTES) {
		tcp_bth_put32(p, b->ext4);
	} else if (b->ext_bytes == TCP_BTH_RETH_BYTES) {
		tcp_bth_put32(p, (__u32)(b->va >> 32));
		tcp_bth_put32(p + 4, (__u32)b->va);
		tcp_bth_put32(p + 8, b->rkey);
		tcp_bth_put32(p + 12, b->dma_length);
	}
	return len;
}

/* Is a train of @bytes in messages of @length one that may be? */
static inline bool tcp_bth_train_valid(__u32 length, __u32 bytes)
{
	return length && bytes >= length && bytes % length == 0 &&
	       bytes / length <= TCP_BTH_TRAIN_MAX_MESSAGES;
}

/* The last word of a train of WRITEs. */
static inline __u32 tcp_bth_train_word(__u16 messages, __u16 step)
{
	return (__u32)step << 16 | messages;
}

static inline __u16 tcp_bth_train_step(__u32 word) { return (__u16)(word >> 16); }

/* Bytes of the stream that @word's train of WRITEs of @length each takes; 0: no such train can be. */
static inline __u32 tcp_bth_write_train_bytes(__u32 length, __u32 word)
{
	__u64 bytes = (__u64)length * (__u16)word;

	if ((__u16)word > TCP_BTH_TRAIN_MAX_MESSAGES || bytes > 0xffffffffu)
		return 0;
	return (__u16)word > 1 && !tcp_bth_train_step(word) ? 0 : (__u32)bytes;
}

/* ver 1: sequence numbers that the message, or the train, takes. */
static inline __u32 tcp_bth_stream_bytes(const struct tcp_bth *b)
{
	if (b->opcode == TCP_BTH_OP_SEND_TRAIN || tcp_bth_is_mixed_train(b->opcode))
		return b->ext4;
	if (b->opcode == TCP_BTH_OP_WRITE_TRAIN)
		return tcp_bth_write_train_bytes(b->length, b->dma_length);
	return b->length ? b->length : 1;
}

/**
 * tcp_bth_parse() - read one option.
 * @opt: points at the kind byte; @room bytes of header are readable from there
 * @seq: sequence number of the segment, host order
 * @payload: bytes of payload in the segment
 * @b: filled on TCP_BTH_OK, untouched otherwise
 *
 * Everything on the wire is hostile: whatever does not fit one of the two
 * layouts exactly is an error, and the segment is then plain TCP.
 */
static inline enum tcp_bth_error tcp_bth_parse(const __u8 *opt, unsigned int room, __u32 seq,
					       __u32 payload, struct tcp_bth *b)
{
	__u32 start_seq, mbo, icrc = 0, length = 0;
	unsigned int len, fixed, ext;
	__u8 ver, flags, opcode, segno = 0;
	const __u8 *p;
	bool times;

	if (room < TCP_BTH_HEAD_BYTES || opt[0] != TCP_BTH_KIND ||
	    opt[1] < TCP_BTH_HEAD_BYTES || tcp_bth_get16(opt + 2) != TCP_BTH_EXID)
		return TCP_BTH_E_NONE;
	len = opt[1];
	if (len > room || len < TCP_BTH_OPT_MIN_BYTES || len > TCP_BTH_OPT_MAX_BYTES)
		return TCP_BTH_E_LENGTH;
	ver = opt[4] & TCP_BTH_F_VER_MASK;
	flags = opt[4] & (__u8)~TCP_BTH_F_VER_MASK;
	opcode = opt[5];
	if (ver > 1)
		return TCP_BTH_E_VERSION;
	if (ver == 1 && flags & TCP_BTH_F_ICRC)
		return TCP_BTH_E_RESERVED;
	if (opcode >= TCP_BTH_OP_COUNT)
		return TCP_BTH_E_OPCODE;
	times = ver == 0 || flags & TCP_BTH_F_TIMESTAMP;
	fixed = ver == 0 ? TCP_BTH_HEAD_BYTES + TCP_BTH_V0_BYTES :
			   TCP_BTH_HEAD_BYTES + TCP_BTH_V1_BYTES +
			   (times ? (unsigned int)TCP_BTH_TS_BYTES : 0u);
	if (len < fixed)
		return TCP_BTH_E_LENGTH;
	ext = len - fixed;
	if (ext != 0 && ext != TCP_BTH_EXT4_BYTES && ext != TCP_BTH_RETH_BYTES)
		return TCP_BTH_E_LENGTH;

	p = opt + sizeof(struct tcp_bth_head);
	if (ver == 0) {
		__u32 mbo_seg = tcp_bth_get32(p);

		if (tcp_bth_is_train(opcode))
			return TCP_BTH_E_OPCODE;
		mbo = mbo_seg >> 8;
		segno = (__u8)mbo_seg;
		start_seq = seq - mbo;
		icrc = tcp_bth_get32(p + 4);
		if (payload && tcp_bth_position(opcode) & TCP_BTH_POS_FIRST && mbo)
			return TCP_BTH_E_RANGE;
	} else {
		__u32 stream_bytes;

		start_seq = tcp_bth_get32(p);
		length = tcp_bth_get32(p + 4);
		/* ver 1 names the message: only ONLY opcodes, and the segment lies inside */
		if (tcp_bth_position(opcode) != TCP_BTH_POS_ONLY)
			return TCP_BTH_E_OPCODE;
		stream_bytes = length ? length : 1;
		if (opcode == TCP_BTH_OP_SEND_TRAIN) {
			if (ext != TCP_BTH_EXT4_BYTES)
				return TCP_BTH_E_LENGTH;
			stream_bytes = tcp_bth_get32(opt + fixed);
			if (!tcp_bth_train_valid(length, stream_bytes))
				return TCP_BTH_E_RANGE;
		} else if (tcp_bth_is_mixed_train(opcode)) {
			if (ext != TCP_BTH_EXT4_BYTES)
				return TCP_BTH_E_LENGTH;
			stream_bytes = tcp_bth_get32(opt + fixed);
			if (!stream_bytes)
				return TCP_BTH_E_RANGE;
		} else if (opcode == TCP_BTH_OP_WRITE_TRAIN) {
			if (ext != TCP_BTH_RETH_BYTES)
				return TCP_BTH_E_LENGTH;
			stream_bytes = tcp_bth_write_train_bytes(length, tcp_bth_get32(opt + fixed + 12));
			if (!stream_bytes)
				return TCP_BTH_E_RANGE;
		}
		mbo = payload ? seq - start_seq : 0;
		if (payload && (mbo > stream_bytes || payload > stream_bytes - mbo))
			return TCP_BTH_E_RANGE;
	}

	b->ver = ver;
	b->flags = flags;
	b->opcode = opcode;
	b->ext_bytes = (__u8)ext;
	b->msn = tcp_bth_get16(opt + 6);
	b->segno = segno;
	b->reserved = 0;
	b->start_seq = start_seq;
	b->length = length;
	b->mbo = mbo;
	b->icrc = icrc;
	b->tsval = times ? tcp_bth_get32(p + 8) : 0;
	b->tsecr = times ? tcp_bth_get32(p + 12) : 0;
	p = opt + fixed;
	b->ext4 = ext == TCP_BTH_EXT4_BYTES ? tcp_bth_get32(p) : 0;
	if (ext == TCP_BTH_RETH_BYTES) {
		b->va = (__u64)tcp_bth_get32(p) << 32 | tcp_bth_get32(p + 4);
		b->rkey = tcp_bth_get32(p + 8);
		b->dma_length = tcp_bth_get32(p + 12);
	} else {
		b->va = 0;
		b->rkey = 0;
		b->dma_length = 0;
	}
	return TCP_BTH_OK;
}

/**
 * tcp_bth_find() - the tcp_bth option among @room bytes of TCP options.
 * @opt_at: set to the option's offset in @opts on TCP_BTH_OK; may be NULL
 *
 * A header that carries the option twice is refused: a middlebox that copies
 * options must not make two readers see two messages.
 */
static inline enum tcp_bth_error tcp_bth_find(const __u8 *opts, unsigned int room, __u32 seq,
					      __u32 payload, struct tcp_bth *b, unsigned int *opt_at)
{
	enum tcp_bth_error err = TCP_BTH_E_NONE;
	unsigned int i = 0, len;

	while (i < room) {
		if (opts[i] == 0)
			break;
		if (opts[i] == 1) {
			i++;
			continue;
		}
		if (i + 2 > room)
			break;
		len = opts[i + 1];
		if (len < 2 || len > room - i)
			break;
		if (opts[i] == TCP_BTH_KIND && len >= TCP_BTH_HEAD_BYTES &&
		    tcp_bth_get16(opts + i + 2) == TCP_BTH_EXID) {
			if (err != TCP_BTH_E_NONE)
				return TCP_BTH_E_TWICE;
			err = tcp_bth_parse(opts + i, len, seq, payload, b);
			if (opt_at)
				*opt_at = i;
		}
		i += len;
	}
	return err;
}

#ifdef __cplusplus
}
#endif
#endif
