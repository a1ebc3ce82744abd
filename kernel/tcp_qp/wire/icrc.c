// SPDX-License-Identifier: GPL-2.0
/*
 * The CRC of a ver 0 segment: CRC-32 (IEEE) over the option, with what is
 * changed on the way as zero, and the payload.  crc32_le() is table driven
 * here; the switch has the fast one.
 */
#include <linux/crc32.h>
#include <linux/skbuff.h>
#include <net/tcp.h>
#include <tcp_qp/tcp_bth.h>
#include "wire/icrc.h"

/* The option as the CRC sees it: without rtr bits, CRC and timestamps. */
static void tqp_icrc_mask(u8 *masked, const u8 *opt, u32 bytes)
{
	memcpy(masked, opt, bytes);
	masked[offsetof(struct tcp_bth_head, flags)] &= ~(TCP_BTH_F_RTR | TCP_BTH_F_RTR_ACK);
	memset(masked + offsetof(struct tcp_bth_v0, icrc), 0,
	       sizeof(struct tcp_bth_v0) - offsetof(struct tcp_bth_v0, icrc));
}

u32 tqp_icrc(const u8 *opt, u32 bytes, struct sk_buff *skb, u32 off)
{
	u8 masked[TCP_BTH_OPT_MAX_BYTES];
	struct skb_seq_state state;
	unsigned int done = 0, n;
	const u8 *data;
	u32 crc;

	tqp_icrc_mask(masked, opt, bytes);
	crc = crc32_le(~0, masked, bytes);
	skb_prepare_seq_read(skb, off, skb->len, &state);
	while ((n = skb_seq_read(done, &data, &state))) {
		crc = crc32_le(crc, data, n);
		done += n;
	}
	return ~crc;
}
