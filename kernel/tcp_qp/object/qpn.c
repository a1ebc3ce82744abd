// SPDX-License-Identifier: GPL-2.0
/*
 * QP numbers that can't be guessed from one another.
 *
 * The table is dense, by index, as sparse ones cost an xarray node for each QP.
 * A number is its index sent through a permutation of 24 bits that only this
 * device knows: four Feistel rounds over halves of 12 bits.  Indices and numbers
 * below TQP_QPN_MIN are walked over, so both range over the same set.
 */
#include <linux/siphash.h>
#include "object/tqp.h"

enum {
	TQP_QPN_HALF_BITS = 12,
	TQP_QPN_HALF_MASK = (1 << TQP_QPN_HALF_BITS) - 1,
	TQP_QPN_ROUNDS = 4,
};

static u32 tqp_qpn_round(const struct tqp_device *dev, u32 half, u32 round)
{
	return hsiphash_2u32(half, round, &dev->qpn_key) & TQP_QPN_HALF_MASK;
}

static u32 tqp_qpn_forth(const struct tqp_device *dev, u32 index)
{
	u32 left = index >> TQP_QPN_HALF_BITS, right = index & TQP_QPN_HALF_MASK, was;

	for (u32 i = 0; i < TQP_QPN_ROUNDS; i++) {
		was = left;
		left = right;
		right = was ^ tqp_qpn_round(dev, right, i);
	}
	return left << TQP_QPN_HALF_BITS | right;
}

static u32 tqp_qpn_back(const struct tqp_device *dev, u32 qpn)
{
	u32 left = qpn >> TQP_QPN_HALF_BITS, right = qpn & TQP_QPN_HALF_MASK, was;

	for (u32 i = TQP_QPN_ROUNDS; i-- > 0;) {
		was = right;
		right = left;
		left = was ^ tqp_qpn_round(dev, left, i);
	}
	return left << TQP_QPN_HALF_BITS | right;
}

u32 tqp_qpn_of(const struct tqp_device *dev, u32 index)
{
	do
		index = tqp_qpn_forth(dev, index);
	while (index < TQP_QPN_MIN);
	return index;
}

u32 tqp_qpn_index(const struct tqp_device *dev, u32 qpn)
{
	if (qpn < TQP_QPN_MIN || qpn > TQP_QPN_MAX)
		return 0;	/* nobody has it */
	do
		qpn = tqp_qpn_back(dev, qpn);
	while (qpn < TQP_QPN_MIN);
	return qpn;
}
