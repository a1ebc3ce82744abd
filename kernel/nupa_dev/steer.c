// SPDX-License-Identifier: GPL-2.0
/*
 * Flow steering (ethtool -N): exact matches on a TCP flow's addresses and
 * ports, each of which may be left out whole.
 */
#include <linux/ethtool.h>
#include "nupa.h"

static const struct xa_limit nupa_steer_limit = XA_LIMIT(0, NUPA_STEER_RULES_MAX - 1);

/* One field: copied if its mask is all ones, @any if it is all zeros. */
static int nupa_steer_field(void *to, const void *value, const void *mask, size_t bytes,
			    u16 any, u16 *wildcards)
{
	if (!memchr_inv(mask, 0, bytes)) {
		*wildcards |= any;
		return 0;
	}
	if (memchr_inv(mask, 0xff, bytes))
		return -EOPNOTSUPP;
	memcpy(to, value, bytes);
	return 0;
}

static int nupa_steer_v4(const struct ethtool_rx_flow_spec *fs, struct nupa_flow *flow, u16 *any)
{
	const struct ethtool_tcpip4_spec *h = &fs->h_u.tcp_ip4_spec, *m = &fs->m_u.tcp_ip4_spec;

	flow->family = 4;
	if (m->tos)
		return -EOPNOTSUPP;
	return nupa_steer_field(flow->saddr, &h->ip4src, &m->ip4src, sizeof(h->ip4src),
				NUPA_STEER_ANY_SADDR, any) ?:
	       nupa_steer_field(flow->daddr, &h->ip4dst, &m->ip4dst, sizeof(h->ip4dst),
				NUPA_STEER_ANY_DADDR, any) ?:
	       nupa_steer_field(&flow->sport, &h->psrc, &m->psrc, sizeof(h->psrc),
				NUPA_STEER_ANY_SPORT, any) ?:
	       nupa_steer_field(&flow->dport, &h->pdst, &m->pdst, sizeof(h->pdst),
				NUPA_STEER_ANY_DPORT, any);
}

static int nupa_steer_v6(const struct ethtool_rx_flow_spec *fs, struct nupa_flow *flow, u16 *any)
{
	const struct ethtool_tcpip6_spec *h = &fs->h_u.tcp_ip6_spec, *m = &fs->m_u.tcp_ip6_spec;

	flow->family = 6;
	if (m->tclass)
		return -EOPNOTSUPP;
	return nupa_steer_field(flow->saddr, h->ip6src, m->ip6src, sizeof(h->ip6src),
				NUPA_STEER_ANY_SADDR, any) ?:
	       nupa_steer_field(flow->daddr, h->ip6dst, m->ip6dst, sizeof(h->ip6dst),
				NUPA_STEER_ANY_DADDR, any) ?:
	       nupa_steer_field(&flow->sport, &h->psrc, &m->psrc, sizeof(h->psrc),
				NUPA_STEER_ANY_SPORT, any) ?:
	       nupa_steer_field(&flow->dport, &h->pdst, &m->pdst, sizeof(h->pdst),
				NUPA_STEER_ANY_DPORT, any);
}

static int nupa_steer_command(const struct ethtool_rx_flow_spec *fs, struct nupa_admin_cmd *cmd)
{
	u16 any = 0;
	int err;

	*cmd = (struct nupa_admin_cmd) {
		.op = cpu_to_le16(NUPA_ADMIN_STEER_ADD),
		.id = cpu_to_le32(fs->location),
		.steer.queue = cpu_to_le16(fs->ring_cookie),
	};
	switch (fs->flow_type) {
	case TCP_V4_FLOW:
		err = nupa_steer_v4(fs, &cmd->steer.flow, &any);
		break;
	case TCP_V6_FLOW:
		err = nupa_steer_v6(fs, &cmd->steer.flow, &any);
		break;
	default:		/* also all FLOW_EXT, FLOW_MAC_EXT and FLOW_RSS */
		return -EOPNOTSUPP;
	}
	cmd->steer.wildcards = cpu_to_le16(any);
	return err;
}

static int nupa_steer_remove(struct nupa_dev *nupa, u32 location)
{
	struct ethtool_rx_flow_spec *fs = xa_load(&nupa->rules, location);
	int err;

	if (!fs)
		return -ENOENT;
	/* the switch has it also while the interface is down */
	err = nupa_admin_simple(nupa, NUPA_ADMIN_STEER_DEL, location);
	if (err && err != -ENOENT && !nupa_failed(nupa))
		return err;
	xa_erase(&nupa->rules, location);
	kfree(fs);
	return 0;
}

static int nupa_steer_place(struct nupa_dev *nupa, struct ethtool_rx_flow_spec *fs)
{
	u32 location = fs->location;
	int err;

	if (location == RX_CLS_LOC_ANY) {
		err = xa_alloc(&nupa->rules, &location, fs, nupa_steer_limit, GFP_KERNEL);
		fs->location = location;
		return err == -EBUSY ? -ENOSPC : err;
	}
	if (location >= NUPA_STEER_RULES_MAX)
		return -EINVAL;		/* also the other special locations */
	err = nupa_steer_remove(nupa, location);
	if (err && err != -ENOENT)
		return err;
	return xa_err(xa_store(&nupa->rules, location, fs, GFP_KERNEL));
}

static int nupa_steer_insert(struct nupa_dev *nupa, struct ethtool_rx_flow_spec *spec)
{
	struct ethtool_rx_flow_spec *fs;
	struct nupa_admin_cmd cmd;
	int err;

	if (spec->ring_cookie >= nupa->nr_queues)	/* also drop, VFs */
		return -EINVAL;
	err = nupa_steer_command(spec, &cmd);
	if (err)
		return err;
	fs = kmemdup(spec, sizeof(*spec), GFP_KERNEL);
	if (!fs)
		return -ENOMEM;
	err = nupa_steer_place(nupa, fs);
	if (err)
		goto free;
	spec->location = fs->location;
	cmd.id = cpu_to_le32(fs->location);
	if (nupa->up)
		err = nupa_admin_submit(nupa, &cmd, NULL);
	if (!err)
		return 0;
	xa_erase(&nupa->rules, fs->location);
free:
	kfree(fs);
	return err;
}

int nupa_steer_apply(struct nupa_dev *nupa)
{
	struct ethtool_rx_flow_spec *fs;
	unsigned long location;
	int err = 0;

	xa_for_each(&nupa->rules, location, fs) {
		struct nupa_admin_cmd cmd;

		/* rules outlive the queues, in the switch too unless it was reset */
		err = nupa_admin_simple(nupa, NUPA_ADMIN_STEER_DEL, location);
		if (err && err != -ENOENT)
			return err;
		err = nupa_steer_command(fs, &cmd) ?: nupa_admin_submit(nupa, &cmd, NULL);
		if (err)
			return err;
	}
	return 0;
}

void nupa_steer_purge(struct nupa_dev *nupa)
{
	struct ethtool_rx_flow_spec *fs;
	unsigned long location;

	xa_for_each(&nupa->rules, location, fs)
		nupa_steer_remove(nupa, location);
}

bool nupa_steer_uses(struct nupa_dev *nupa, u16 first_queue)
{
	struct ethtool_rx_flow_spec *fs;
	unsigned long location;

	xa_for_each(&nupa->rules, location, fs)
		if (fs->ring_cookie >= first_queue)
			return true;
	return false;
}

static int nupa_steer_list(struct nupa_dev *nupa, struct ethtool_rxnfc *cmd, u32 *locations)
{
	struct ethtool_rx_flow_spec *fs;
	unsigned long location;
	u32 n = 0;

	cmd->data = NUPA_STEER_RULES_MAX;
	xa_for_each(&nupa->rules, location, fs) {
		if (locations && n == cmd->rule_cnt)
			return -EMSGSIZE;
		if (locations)
			locations[n] = location;
		n++;
	}
	cmd->rule_cnt = n;
	return 0;
}

static int nupa_steer_show(struct nupa_dev *nupa, struct ethtool_rx_flow_spec *to)
{
	const struct ethtool_rx_flow_spec *fs = xa_load(&nupa->rules, to->location);

	if (!fs)
		return -ENOENT;
	*to = *fs;
	return 0;
}

u32 nupa_rx_rings(struct net_device *dev)
{
	struct nupa_dev *nupa = netdev_priv(dev);

	return nupa->nr_queues;
}

int nupa_rxnfc_get(struct net_device *dev, struct ethtool_rxnfc *cmd, u32 *locations)
{
	struct nupa_dev *nupa = netdev_priv(dev);
	int err;

	switch (cmd->cmd) {
	case ETHTOOL_GRXRINGS:
		cmd->data = nupa_rx_rings(dev);
		return 0;
	case ETHTOOL_GRXCLSRLCNT:
		err = nupa_steer_list(nupa, cmd, NULL);
		cmd->data |= RX_CLS_LOC_SPECIAL;
		return err;
	case ETHTOOL_GRXCLSRULE:
		return nupa_steer_show(nupa, &cmd->fs);
	case ETHTOOL_GRXCLSRLALL:
		return nupa_steer_list(nupa, cmd, locations);
	default:
		return -EOPNOTSUPP;
	}
}

int nupa_rxnfc_set(struct net_device *dev, struct ethtool_rxnfc *cmd)
{
	struct nupa_dev *nupa = netdev_priv(dev);

	if (!(dev->features & NETIF_F_NTUPLE))
		return -EOPNOTSUPP;
	switch (cmd->cmd) {
	case ETHTOOL_SRXCLSRLINS:
		return nupa_steer_insert(nupa, &cmd->fs);
	case ETHTOOL_SRXCLSRLDEL:
		return nupa_steer_remove(nupa, cmd->fs.location);
	default:
		return -EOPNOTSUPP;
	}
}
