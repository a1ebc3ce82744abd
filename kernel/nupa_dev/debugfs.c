// SPDX-License-Identifier: GPL-2.0
/* Where every index stands: /sys/kernel/debug/nupa_dev/<PCI address>/queues */
#include <linux/debugfs.h>
#include <linux/seq_file.h>
#include "nupa.h"

static struct dentry *nupa_debugfs_root;

static void nupa_show_port(struct seq_file *s, struct nupa_dev *nupa)
{
	const struct nupa_ring_ctl *admin = &nupa->admin.ctl->ring;

	seq_printf(s, "port state %#lx up %d status %#x control %#x gen %u ack %u failure \"%s\"\n",
		   READ_ONCE(nupa->state), nupa->up, nupa_get(&nupa->regs->status),
		   nupa_get(&nupa->regs->control), nupa_get(&nupa->regs->control_gen),
		   nupa_get(&nupa->regs->reset_ack), READ_ONCE(nupa->failure) ?: "");
	seq_printf(s, "admin prod %u irq_event %u cons %u db_event %u\n", nupa_get(&admin->prod),
		   nupa_get(&admin->irq_event), nupa_get(&admin->cons), nupa_get(&admin->db_event));
}

static void nupa_show_queue(struct seq_file *s, const struct nupa_queue *q)
{
	const struct nupa_txq *tx = &q->tx;
	const struct nupa_rxq *rx = &q->rx;

	seq_printf(s, "tx%u entries %u prod %u tail %u urgent %u parked %d | prod %u irq_event %u cons %u db_event %u\n",
		   q->index, tx->entries, READ_ONCE(tx->prod), READ_ONCE(tx->tail),
		   READ_ONCE(tx->urgent), READ_ONCE(tx->parked), nupa_get(&tx->ctl->prod),
		   nupa_get(&tx->ctl->irq_event), nupa_get(&tx->ctl->cons),
		   nupa_get(&tx->ctl->db_event));
	seq_printf(s, "rx%u entries %u buf_bytes %u fill %u..%u comp_cons %u | fill_prod %u comp_cons %u irq_event %u fill_cons %u comp_prod %u\n",
		   q->index, rx->entries, rx->fill.buf_bytes, READ_ONCE(rx->fill.cons),
		   READ_ONCE(rx->fill.prod), READ_ONCE(rx->comp_cons),
		   nupa_get(&rx->ctl->fill_prod), nupa_get(&rx->ctl->comp_cons),
		   nupa_get(&rx->ctl->irq_event), nupa_get(&rx->ctl->fill_cons),
		   nupa_get(&rx->ctl->comp_prod));
	seq_printf(s, "long%u entries %u buf_bytes %u fill %u..%u | long_prod %u long_cons %u\n",
		   q->index, rx->longs.entries, rx->longs.buf_bytes, READ_ONCE(rx->longs.cons),
		   READ_ONCE(rx->longs.prod), nupa_get(&rx->ctl->long_prod),
		   nupa_get(&rx->ctl->long_cons));
}

static int nupa_queues_show(struct seq_file *s, void *data)
{
	struct nupa_dev *nupa = s->private;
	int i;

	rtnl_lock();
	netdev_lock(nupa->netdev);
	nupa_show_port(s, nupa);
	for (i = 0; nupa->up && i < nupa->nr_queues; i++)
		nupa_show_queue(s, &nupa->queues[i]);
	netdev_unlock(nupa->netdev);
	rtnl_unlock();
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(nupa_queues);

void nupa_debugfs_add(struct nupa_dev *nupa)
{
	nupa->debugfs = debugfs_create_dir(pci_name(nupa->pdev), nupa_debugfs_root);
	debugfs_create_file("queues", 0400, nupa->debugfs, nupa, &nupa_queues_fops);
}

void nupa_debugfs_remove(struct nupa_dev *nupa)
{
	debugfs_remove_recursive(nupa->debugfs);
}

void nupa_debugfs_init(void)
{
	nupa_debugfs_root = debugfs_create_dir(NUPA_NAME, NULL);
}

void nupa_debugfs_exit(void)
{
	debugfs_remove_recursive(nupa_debugfs_root);
}
