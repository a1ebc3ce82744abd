/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How the LOCAL_IN hook's mapping gets to the receive loop: as an skb
 * extension that overlays struct mptcp_ext.
 *
 * The id is MPTCP's, whose sockets we refuse, because TCP keeps skbs with
 * different MPTCP extensions apart everywhere it would merge them.  The hook
 * does not know whose the packet is: an MPTCP socket sees an extension with all
 * flags zero, which says nothing.
 *
 * Before 7.3 the struct begins with eight bytes that take a RETH's address.
 * Since then a RETH does not fit.  It lies behind, in memory that the extensions
 * have for kinds that this packet lacks: each object has room for all kinds at
 * once.  TCP does not compare it, so a hash of it is in what TCP does compare.
 */
#ifndef TQP_SKB_MAP_H
#define TQP_SKB_MAP_H

#include <linux/jhash.h>
#include <linux/skbuff.h>
#include <net/mptcp.h>
#include <net/xfrm.h>
#include "wire/msgwire.h"

struct tqp_skb_reth {
	u64 va;
	u32 rkey;
	u32 unused;
};

struct tqp_skb_ext {
	u32 start_seq;
	u32 length;
	u32 ext4;
	u32 reth;		/* its rkey, or if it lies behind its hash */
	u16 mptcp_flags;	/* zero: where struct mptcp_ext has its flags, none is set */
	u16 magic;
	u16 msn;
	u8 opcode;
	u8 flags;
	struct tqp_skb_reth behind[];	/* one if TQP_MAP_RETH and not TQP_SKB_RETH_BEFORE */
};

enum {
	TQP_SKB_EXT_MAGIC = 0x7170,
	TQP_SKB_EXT_AT = offsetof(struct mptcp_ext, data_seq),
	TQP_SKB_RETH_BEFORE = sizeof(u64) <= TQP_SKB_EXT_AT,
	TQP_SKB_CHUNK_BYTES = 8,	/* the unit of struct skb_ext's offsets */
};

static_assert(TQP_SKB_EXT_AT + sizeof(struct tqp_skb_ext) == sizeof(struct mptcp_ext));
static_assert(TQP_SKB_EXT_AT + offsetof(struct tqp_skb_ext, mptcp_flags) ==
	      offsetofend(struct mptcp_ext, csum));
static_assert(TQP_SKB_RETH_BEFORE || IS_ENABLED(CONFIG_XFRM) ||
	      IS_ENABLED(CONFIG_BRIDGE_NETFILTER));
static_assert(sizeof(struct tqp_skb_reth) <= sizeof(struct sec_path));
#if IS_ENABLED(CONFIG_BRIDGE_NETFILTER)
static_assert(sizeof(struct tqp_skb_reth) <= sizeof(struct nf_bridge_info));
#endif

/* Is there a kind that this packet lacks, with room for a RETH?  TCP adds none any more. */
static inline bool tqp_skb_ext_spare(const struct skb_ext *all)
{
#if IS_ENABLED(CONFIG_BRIDGE_NETFILTER)
	if (!all->offset[SKB_EXT_BRIDGE_NF])
		return true;
#endif
#ifdef CONFIG_XFRM
	if (!all->offset[SKB_EXT_SEC_PATH])
		return true;
#endif
	return false;
}

/* Room for a RETH behind the extension that was just added to @skb; false: there is none. */
static inline bool tqp_skb_reth_room(struct sk_buff *skb)
{
	struct skb_ext *all = skb->extensions;
	u32 at = all->offset[SKB_EXT_MPTCP];

	for (int i = 0; i < SKB_EXT_NUM; i++)
		if (all->offset[i] > at)
			return false;	/* it was there before, and another came behind it */
	if (!tqp_skb_ext_spare(all))
		return false;
	all->chunks = at + (sizeof(struct mptcp_ext) + sizeof(struct tqp_skb_reth)) /
			   TQP_SKB_CHUNK_BYTES;
	return true;
}

static inline bool tqp_skb_reth_put(struct sk_buff *skb, struct tqp_skb_ext *ext,
				    const struct tqp_skb_map *map)
{
	if (TQP_SKB_RETH_BEFORE) {
		*(u64 *)((void *)ext - TQP_SKB_EXT_AT) = map->va;
		ext->reth = map->rkey;
		return true;
	}
	if (!tqp_skb_reth_room(skb))
		return false;
	ext->behind[0] = (struct tqp_skb_reth) { .va = map->va, .rkey = map->rkey };
	ext->reth = jhash(&ext->behind[0], sizeof(ext->behind[0]), 0);
	return true;
}

static inline void tqp_skb_reth_get(const struct tqp_skb_ext *ext, struct tqp_skb_map *map)
{
	if (TQP_SKB_RETH_BEFORE) {
		map->va = *(const u64 *)((const void *)ext - TQP_SKB_EXT_AT);
		map->rkey = ext->reth;
	} else {
		map->va = ext->behind[0].va;
		map->rkey = ext->behind[0].rkey;
	}
}

/*
 * False: no memory.  A RETH without room is left out, which the receive loop
 * refuses: a WRITE through IPsec and a bridge with netfilter at once.
 */
static inline bool tqp_skb_map_put(struct sk_buff *skb, const struct tqp_skb_map *map)
{
	void *whole = skb_ext_add(skb, SKB_EXT_MPTCP);
	struct tqp_skb_ext *ext = whole + TQP_SKB_EXT_AT;

	if (!whole)
		return false;
	*(struct mptcp_ext *)whole = (struct mptcp_ext){};
	ext->start_seq = map->start_seq;
	ext->length = map->length;
	ext->ext4 = map->ext4;
	ext->magic = TQP_SKB_EXT_MAGIC;
	ext->msn = map->msn;
	ext->opcode = map->opcode;
	ext->flags = map->flags;
	if (map->flags & TQP_MAP_RETH && !tqp_skb_reth_put(skb, ext, map))
		ext->flags &= ~TQP_MAP_RETH;
	return true;
}

/* What the hook left, or NULL. */
static inline const struct tqp_skb_ext *tqp_skb_ext(const struct sk_buff *skb)
{
	const void *whole = skb_ext_find(skb, SKB_EXT_MPTCP);
	const struct tqp_skb_ext *ext = whole + TQP_SKB_EXT_AT;

	return whole && ext->magic == TQP_SKB_EXT_MAGIC && !ext->mptcp_flags ? ext : NULL;
}

/* The mapping that the hook left, in @map, or NULL. */
static inline const struct tqp_skb_map *tqp_skb_map(const struct sk_buff *skb,
						    struct tqp_skb_map *map)
{
	const struct tqp_skb_ext *ext = tqp_skb_ext(skb);

	if (!ext)
		return NULL;
	*map = (struct tqp_skb_map) {
		.start_seq = ext->start_seq,
		.length = ext->length,
		.ext4 = ext->ext4,
		.msn = ext->msn,
		.opcode = ext->opcode,
		.flags = ext->flags,
	};
	if (ext->flags & TQP_MAP_RETH)
		tqp_skb_reth_get(ext, map);
	return map;
}

#endif
