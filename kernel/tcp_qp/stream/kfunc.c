// SPDX-License-Identifier: GPL-2.0
/*
 * The ULP for every new socket of a cgroup: a BPF program at cgroup/sock_create calls us.
 *
 * Who can load and attach such programs (CAP_BPF, CAP_NET_ADMIN) reaches this, and nobody
 * else.  Without BTF in the module, or where it does not fit the kernel's, there is no such
 * function, and all else is as it is.
 */
#include <linux/bpf.h>
#include <linux/btf.h>
#include <linux/btf_ids.h>
#include <linux/module.h>
#include "stream/stream.h"

__bpf_kfunc_start_defs();

/*
 * Returns 0, or an errno: not TCP's, or not new.  What is attached when a socket is bound or
 * released may call this, too: sockets that others can be at, in softirq, are left alone.
 */
__bpf_kfunc int tqp_stream_kfunc(struct bpf_sock *ctx)
{
	struct sock *sk = (struct sock *)ctx;	/* as for all programs of this type */

	return tqp_stream_install_new(sk);
}

__bpf_kfunc_end_defs();

BTF_KFUNCS_START(tqp_stream_kfuncs)
BTF_ID_FLAGS(func, tqp_stream_kfunc)
BTF_KFUNCS_END(tqp_stream_kfuncs)

/*
 * Types of program share the list of functions.  To another type our argument would be any
 * memory of its own, not a socket.  The module has no other function that BPF may call.
 */
static int tqp_stream_kfunc_filter(const struct bpf_prog *prog, u32 id)
{
	return prog->type == BPF_PROG_TYPE_CGROUP_SOCK ? 0 : -EACCES;
}

static const struct btf_kfunc_id_set tqp_stream_kfunc_set = {
	.owner = THIS_MODULE,
	.set = &tqp_stream_kfuncs,
	.filter = tqp_stream_kfunc_filter,
};

void tqp_stream_kfunc_init(void)
{
	int err = register_btf_kfunc_id_set(BPF_PROG_TYPE_CGROUP_SOCK, &tqp_stream_kfunc_set);

	if (err)
		pr_info("tcp_qp: no cgroup can have %s: %d\n", TCP_QP_STREAM_ULP_NAME, err);
}
