// SPDX-License-Identifier: GPL-2.0
/*
 * Memory windows (IBTA 10.6.7): an rkey of its own for a part of a region,
 * bound and taken back by work requests.  Type 1 belongs to a PD, type 2 to
 * the QP that bound it.
 *
 * A binding names its region by key, so a window's use ends with its region.
 * The switch knows no windows: what is written through one is delivered, and
 * the CPU copies it.
 */
#include <linux/random.h>
#include <linux/slab.h>
#include "memory/memory.h"

#define TQP_MW_ACCESS (IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_ATOMIC)

/* What a bound window permits; replaced as a whole, read under RCU. */
struct tqp_binding {
	struct rcu_head rcu;
	refcount_t refs;	/* as long as it is bound or being retired, and each response's */
	struct tqp_window *window;	/* a reference */
	struct tqp_tx_msg *msg;	/* retired by it; or NULL */
	void (*put)(struct tqp_tx_msg *msg);
	u32 key;
	u32 lkey;		/* of the region */
	u32 qpn;		/* type 2; 0: any QP of the PD */
	int access;
	u64 va;
	u64 bytes;
};

/* A key's low 8 bits are its owner's to choose, IBTA 10.6.7: these 23 are not to be guessed. */
#define TQP_MW_INDEX_BITS 23
static_assert(TQP_MW_FIRST == 1 << TQP_MW_INDEX_BITS && TQP_MW_MAX < TQP_MW_FIRST);

static struct tqp_window *tqp_mw_lookup(struct tqp_device *dev, u32 key)
{
	return xa_load(&dev->mws, key >> 8);
}

static int tqp_mw_reserve_index(struct tqp_device *dev, u32 *index)
{
	int i, ret = -EBUSY;

	if (!atomic_add_unless(&dev->nr_mws, 1, TQP_MW_MAX))
		return -ENOSPC;
	for (i = 0; ret == -EBUSY && i < TQP_RANDOM_TRIES; i++) {
		*index = TQP_MW_FIRST | get_random_u32() >> (32 - TQP_MW_INDEX_BITS);
		ret = xa_insert(&dev->mws, *index, XA_ZERO_ENTRY, GFP_KERNEL);
	}
	if (ret)
		atomic_dec(&dev->nr_mws);
	return ret;
}

static int tqp_window_publish(struct tqp_device *dev, struct tqp_window *window)
{
	u32 index;
	int ret;

	ret = tqp_mw_reserve_index(dev, &index);
	if (ret)
		return ret;
	window->index = index;
	window->key = index << 8 | get_random_u8();
	xa_store(&dev->mws, index, window, GFP_KERNEL);	/* replaces: allocates nothing */
	return 0;
}

int tqp_alloc_mw(struct ib_mw *ibmw, struct ib_udata *udata)
{
	struct tqp_window *window;
	int ret;

	if (ibmw->type != IB_MW_TYPE_1 && ibmw->type != IB_MW_TYPE_2)
		return -EINVAL;
	window = kzalloc(sizeof(*window), GFP_KERNEL_ACCOUNT);
	if (!window)
		return -ENOMEM;
	window->type = ibmw->type;
	window->pdn = to_tqp_pd(ibmw->pd)->pdn;
	spin_lock_init(&window->lock);
	refcount_set(&window->refs, 1);
	init_waitqueue_head(&window->unused);
	ret = tqp_window_publish(to_tqp_device(ibmw->device), window);
	if (ret) {
		kfree(window);
		return ret;
	}
	to_tqp_mw(ibmw)->window = window;
	ibmw->rkey = window->key;
	return 0;
}

static void tqp_window_put(struct tqp_window *window)
{
	rcu_read_lock();	/* once our reference is gone it may go, too */
	if (refcount_dec_and_test(&window->refs))
		kfree_rcu(window, rcu);
	else if (refcount_read(&window->refs) == 1)
		wake_up_all(&window->unused);
	rcu_read_unlock();
}

void tqp_binding_put(struct tqp_binding *binding)
{
	if (!refcount_dec_and_test(&binding->refs))
		return;
	if (binding->msg)
		binding->put(binding->msg);
	tqp_window_put(binding->window);
	kfree_rcu(binding, rcu);
}

void tqp_mw_withdraw(struct tqp_device *dev, struct tqp_window *window)
{
	struct tqp_binding *binding;

	xa_store(&dev->mws, window->index, XA_ZERO_ENTRY, GFP_KERNEL);	/* replaces: allocates nothing */
	spin_lock_bh(&window->lock);	/* a work request may have found it before */
	window->dead = true;
	binding = rcu_replace_pointer(window->binding, NULL, lockdep_is_held(&window->lock));
	spin_unlock_bh(&window->lock);
	if (!binding)
		return;
	tqp_end_readers(dev);
	tqp_binding_put(binding);
}

void tqp_mw_forget(struct tqp_device *dev, struct tqp_window *window)
{
	xa_erase(&dev->mws, window->index);
	atomic_dec(&dev->nr_mws);
	tqp_window_put(window);
}

/* RCU read side: the region behind a window, and *@by what it is bound by; or NULL. */
static struct tqp_mr *tqp_mw_resolve(const struct tqp_conn *conn, u32 key, u64 va, u64 bytes,
				     int access, struct tqp_binding **by)
{
	struct tqp_window *window = tqp_mw_lookup(conn->dev, key);
	struct tqp_binding *binding = window ? rcu_dereference(window->binding) : NULL;
	struct tqp_mr *mr;

	if (!binding || binding->key != key || window->pdn != conn->qp->pd->pdn ||
	    (binding->qpn && binding->qpn != conn->qpn) || (binding->access & access) != access ||
	    va < binding->va || va - binding->va > binding->bytes ||
	    bytes > binding->bytes - (va - binding->va))
		return NULL;
	*by = binding;
	mr = tqp_mr_lookup(conn->dev, binding->lkey);
	return mr && !tqp_mr_check(mr, window->pdn, va, bytes, 0) ? mr : NULL;
}

/* RCU read side; *@by: the window's, if it is a window's key and not refused. */
static struct tqp_mr *tqp_key_resolve(const struct tqp_conn *conn, u32 key, u64 va, u64 bytes,
				      int access, struct tqp_binding **by)
{
	struct tqp_mr *mr;

	*by = NULL;
	if (key >> 8 >= TQP_MW_FIRST)
		return tqp_mw_resolve(conn, key, va, bytes, access, by);
	mr = tqp_mr_lookup(conn->dev, key);
	return mr && !tqp_mr_check(mr, conn->qp->pd->pdn, va, bytes, access) ? mr : NULL;
}

struct tqp_mr *tqp_key_mr(const struct tqp_conn *conn, u32 key, u64 va, u64 bytes, int access)
{
	struct tqp_binding *by;

	return tqp_key_resolve(conn, key, va, bytes, access, &by);
}

struct tqp_mr *tqp_key_pin(const struct tqp_conn *conn, u32 key, u64 va, u64 bytes, int access,
			   struct tqp_binding **binding)
{
	struct tqp_binding *by;
	struct tqp_mr *mr;

	*binding = NULL;
	rcu_read_lock();
	mr = tqp_key_resolve(conn, key, va, bytes, access, &by);
	if (mr && by && !refcount_inc_not_zero(&by->refs))
		mr = NULL;
	if (mr && !refcount_inc_not_zero(&mr->refs)) {
		if (by)
			tqp_binding_put(by);
		mr = NULL;
	}
	rcu_read_unlock();
	if (mr)
		*binding = by;
	return mr;
}

/* ---- work requests ---- */

/* May the region be opened like this?  IBTA 10.6.7.2.1 */
static bool tqp_mw_region_fits(const struct tqp_conn *conn, const struct tqp_mw_bind *bind)
{
	int access = IB_ACCESS_MW_BIND;
	struct tqp_mr *mr;
	bool fits;

	if (bind->access & (IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_ATOMIC))
		access |= IB_ACCESS_LOCAL_WRITE;
	rcu_read_lock();
	mr = tqp_mr_lookup(conn->dev, bind->lkey);
	fits = mr && !tqp_mr_check(mr, conn->qp->pd->pdn, bind->va, bind->bytes, access);
	rcu_read_unlock();
	return fits;
}

/* Does the request fit the window? */
static bool tqp_mw_may_bind(const struct tqp_conn *conn, const struct tqp_window *window,
			    const struct tqp_mw_bind *bind)
{
	lockdep_assert_held(&window->lock);
	if (window->dead || window->pdn != conn->qp->pd->pdn || window->key != bind->old_key)
		return false;
	if (window->type == IB_MW_TYPE_1)
		return true;
	/* type 2: taken back before, a length, a new key */
	return !rcu_access_pointer(window->binding) && bind->bytes &&
	       (u8)bind->new_key != (u8)bind->old_key;
}

static struct tqp_binding *tqp_binding_create(const struct tqp_conn *conn,
					      const struct tqp_mw_bind *bind)
{
	struct tqp_binding *binding;

	/* no window gives a right of local access; programs ask for it, and RoCE's devices bear it */
	if (bind->access & ~(TQP_MW_ACCESS | IB_ACCESS_LOCAL_WRITE) ||
	    !tqp_mw_region_fits(conn, bind))
		return NULL;
	binding = kzalloc(sizeof(*binding), GFP_KERNEL_ACCOUNT);
	if (!binding)
		return NULL;
	refcount_set(&binding->refs, 1);
	binding->key = (bind->old_key & ~0xffU) | (u8)bind->new_key;
	binding->lkey = bind->lkey;
	binding->access = bind->access & TQP_MW_ACCESS;
	binding->va = bind->va;
	binding->bytes = bind->bytes;
	return binding;
}

/* False: nothing changed.  *@old is what was bound before. */
static bool tqp_mw_swap(struct tqp_conn *conn, const struct tqp_mw_bind *bind,
			struct tqp_binding *fresh, struct tqp_binding **old)
{
	struct tqp_window *window;
	bool fits;

	rcu_read_lock();
	window = tqp_mw_lookup(conn->dev, bind->old_key);
	if (!window) {
		rcu_read_unlock();
		return false;
	}
	spin_lock_bh(&window->lock);
	fits = tqp_mw_may_bind(conn, window, bind);
	if (fits) {
		if (fresh) {
			refcount_inc(&window->refs);
			fresh->window = window;
		}
		if (fresh && window->type == IB_MW_TYPE_2) {
			fresh->qpn = conn->qpn;
			conn->qp->bound = true;
		}
		window->key = (bind->old_key & ~0xffU) | (u8)bind->new_key;
		*old = rcu_replace_pointer(window->binding, fresh,
					   lockdep_is_held(&window->lock));
	}
	spin_unlock_bh(&window->lock);
	rcu_read_unlock();
	return fits;
}

enum ib_wc_status tqp_mw_bind(struct tqp_conn *conn, const struct tqp_mw_bind *bind,
			      struct tqp_binding **old)
{
	struct tqp_binding *fresh = NULL;

	if (bind->bytes) {	/* without: a type 1 window is taken back */
		fresh = tqp_binding_create(conn, bind);
		if (!fresh)
			return IB_WC_MW_BIND_ERR;
	}
	if (!tqp_mw_swap(conn, bind, fresh, old)) {
		kfree(fresh);
		return IB_WC_MW_BIND_ERR;
	}
	return IB_WC_SUCCESS;
}

static void tqp_mw_retired(struct rcu_head *rcu)
{
	tqp_binding_put(container_of(rcu, struct tqp_binding, rcu));
}

/*
 * Other QPs may be copying by the old key, and sending what was read by it.  The work request
 * waits for them, not the socket lock: what is posted behind it goes on.
 */
void tqp_mw_retire(struct tqp_binding *old, struct tqp_tx_msg *msg,
		   void (*put)(struct tqp_tx_msg *msg))
{
	refcount_inc(&msg->ubuf.refcnt);
	old->msg = msg;
	old->put = put;
	call_rcu_hurry(&old->rcu, tqp_mw_retired);
}

/* What @qpn bound, if its key is *@key or if @key is NULL; RCU read side. */
static bool tqp_mw_unbind(struct tqp_window *window, u32 qpn, const u32 *key)
{
	struct tqp_binding *binding;

	spin_lock_bh(&window->lock);
	binding = rcu_dereference_protected(window->binding, lockdep_is_held(&window->lock));
	if (binding && binding->qpn == qpn && (!key || binding->key == *key))
		RCU_INIT_POINTER(window->binding, NULL);
	else
		binding = NULL;
	spin_unlock_bh(&window->lock);
	if (binding)
		tqp_binding_put(binding);	/* RCU's readers may still look at it */
	return binding;
}

/*
 * Only a type 2 window of this QP: whoever uses it is received under the sk
 * lock that we hold, so there is none to wait for.
 */
bool tqp_mw_invalidate(struct tqp_conn *conn, u32 key)
{
	struct tqp_window *window;
	bool taken;

	rcu_read_lock();
	window = tqp_mw_lookup(conn->dev, key);
	taken = window && tqp_mw_unbind(window, conn->qpn, &key);
	rcu_read_unlock();
	return taken;
}

/* A QP's windows end with it. */
void tqp_mw_drop_qp(struct tqp_device *dev, u32 qpn)
{
	struct tqp_window *window;
	unsigned long index;

	xa_for_each(&dev->mws, index, window) {	/* takes RCU for each step alone */
		rcu_read_lock();
		window = xa_load(&dev->mws, index);
		if (window)
			tqp_mw_unbind(window, qpn, NULL);
		rcu_read_unlock();
		cond_resched();
	}
}
