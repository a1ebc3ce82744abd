/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TQP_ICRC_H
#define TQP_ICRC_H

#include <linux/types.h>

struct sk_buff;

/* Over the @bytes of option at @opt, as it is sent, and @skb's payload from @off on. */
u32 tqp_icrc(const u8 *opt, u32 bytes, struct sk_buff *skb, u32 off);

#endif
