// SPDX-License-Identifier: GPL-2.0
/* Receive side scaling: Toeplitz key and indirection table. */
#include <linux/dma-mapping.h>
#include <linux/ethtool.h>
#include "nupa.h"

void nupa_rss_init(struct nupa_dev *nupa)
{
	netdev_rss_key_fill(nupa->rss.key, sizeof(nupa->rss.key));
}

void nupa_rss_spread(struct nupa_dev *nupa)
{
	int i;

	if (netif_is_rxfh_configured(nupa->netdev))
		return;
	for (i = 0; i < NUPA_RSS_TABLE_ENTRIES; i++)
		nupa->rss.table[i] = ethtool_rxfh_indir_default(i, nupa->nr_queues);
}

int nupa_rss_apply(struct nupa_dev *nupa)
{
	struct nupa_admin_cmd cmd = { .op = cpu_to_le16(NUPA_ADMIN_RSS) };
	dma_addr_t dma;
	u8 *table;
	int err;

	if (!(nupa->features & NUPA_FEAT_RSS))
		return 0;
	table = dma_alloc_coherent(nupa_device(nupa), NUPA_RSS_TABLE_ENTRIES, &dma, GFP_KERNEL);
	if (!table)
		return -ENOMEM;
	memcpy(table, nupa->rss.table, NUPA_RSS_TABLE_ENTRIES);
	memcpy(cmd.rss.key, nupa->rss.key, NUPA_RSS_KEY_BYTES);
	cmd.rss.table_addr = cpu_to_le64(dma);
	err = nupa_admin_submit(nupa, &cmd, NULL);
	dma_free_coherent(nupa_device(nupa), NUPA_RSS_TABLE_ENTRIES, table, dma);
	return err;
}

int nupa_rxfh_get(struct net_device *dev, struct ethtool_rxfh_param *rxfh)
{
	struct nupa_dev *nupa = netdev_priv(dev);
	int i;

	rxfh->hfunc = ETH_RSS_HASH_TOP;
	if (rxfh->key)
		memcpy(rxfh->key, nupa->rss.key, NUPA_RSS_KEY_BYTES);
	for (i = 0; rxfh->indir && i < NUPA_RSS_TABLE_ENTRIES; i++)
		rxfh->indir[i] = nupa->rss.table[i];
	return 0;
}

int nupa_rxfh_set(struct net_device *dev, struct ethtool_rxfh_param *rxfh,
		  struct netlink_ext_ack *extack)
{
	struct nupa_dev *nupa = netdev_priv(dev);
	struct nupa_rss old = nupa->rss;
	int i, err;

	if (rxfh->hfunc != ETH_RSS_HASH_NO_CHANGE && rxfh->hfunc != ETH_RSS_HASH_TOP) {
		NL_SET_ERR_MSG(extack, "only Toeplitz");
		return -EOPNOTSUPP;
	}
	if (rxfh->key)
		memcpy(nupa->rss.key, rxfh->key, NUPA_RSS_KEY_BYTES);
	for (i = 0; rxfh->indir && i < NUPA_RSS_TABLE_ENTRIES; i++)
		nupa->rss.table[i] = rxfh->indir[i];
	if (!nupa->up)
		return 0;
	err = nupa_rss_apply(nupa);
	if (err)
		nupa->rss = old;
	return err;
}
