// SPDX-License-Identifier: GPL-2.0
/* /dev/catch_up: one connection, and who tells its TCP when. */
#include <linux/delay.h>
#include <linux/hrtimer.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/netfilter_ipv4.h>
#include <net/inet_common.h>
#include "object/compat.h"
#include "catch_up.h"

static struct catch_up *catch_up_now;		/* RCU; one at a time */
static DEFINE_MUTEX(catch_up_mutex);

struct catch_up *catch_up_of(const struct sock *sk)
{
	struct catch_up *c = READ_ONCE(catch_up_now);

	return c && c->sk == sk ? c : NULL;
}

/* ---- who tells ---- */

static int catch_up_backlog_rcv(struct sock *sk, struct sk_buff *skb)
{
	struct catch_up *c = catch_up_of(sk);

	if (c)
		catch_up_tell(c, &c->counts.told_in_backlog);
	return c ? c->old_backlog_rcv(sk, skb) : sk->sk_prot->backlog_rcv(sk, skb);
}

static void catch_up_release_cb(struct sock *sk)
{
	struct catch_up *c = catch_up_of(sk);

	if (!c)
		return tcp_prot.release_cb(sk);
	if (c->owed)
		catch_up_tell(c, &c->counts.told_in_release);
	c->old_prot->release_cb(sk);
}

/* Ordinary bytes come behind what the hardware has sent. */
static int catch_up_sendmsg(struct sock *sk, struct msghdr *msg, size_t size)
{
	struct catch_up *c = catch_up_of(sk);
	int sent;

	lock_sock(sk);
	if (c)
		catch_up_tell(c, &c->counts.told_in_process);
	sent = tcp_sendmsg_locked(sk, msg, size);
	release_sock(sk);
	return sent;
}

static void catch_up_in_softirq(struct catch_up *c)
{
	struct sock *sk = c->sk;

	bh_lock_sock(sk);
	if (sock_owned_by_user(sk))
		c->owed = true;
	else
		catch_up_tell(c, &c->counts.told_in_softirq);
	bh_unlock_sock(sk);
}

static enum hrtimer_restart catch_up_timer(struct hrtimer *timer)
{
	catch_up_in_softirq(container_of(timer, struct catch_up, timer));
	return HRTIMER_NORESTART;
}

/* Before TCP sees a segment of the connection. */
static unsigned int catch_up_local_in(void *priv, struct sk_buff *skb, const struct nf_hook_state *state)
{
	struct catch_up *c = READ_ONCE(catch_up_now);
	const struct iphdr *iph = ip_hdr(skb);
	const struct inet_sock *inet;
	struct tcphdr header, *th;

	if (!c || iph->protocol != IPPROTO_TCP)
		return NF_ACCEPT;
	inet = inet_sk(c->sk);
	th = skb_header_pointer(skb, ip_hdrlen(skb), sizeof(header), &header);
	if (!th || iph->saddr != inet->inet_daddr || th->source != inet->inet_dport ||
	    th->dest != inet->inet_sport)
		return NF_ACCEPT;
	catch_up_in_softirq(c);
	/* the owner's backlog, which tells first, is the one way for it to be behind now */
	if (READ_ONCE(c->sk->sk_lock.owned))
		return NF_ACCEPT;
	smp_rmb();	/* an owner that has gone has told */
	if (after(ntohl(th->ack_seq), READ_ONCE(tcp_sk(c->sk)->snd_nxt)))
		c->counts.acks_ahead++;
	return NF_ACCEPT;
}

static const struct nf_hook_ops catch_up_hook = {
	.hook = catch_up_local_in,
	.pf = NFPROTO_IPV4,
	.hooknum = NF_INET_LOCAL_IN,
	.priority = NF_IP_PRI_LAST,
};

/* ---- sending ---- */

static u8 catch_up_byte(u32 offset)
{
	return (offset * 2654435761U) >> 24;
}

static void catch_up_fill(const struct catch_up *c, const struct catch_up_message *m)
{
	u8 *to = page_address(m->page);

	for (u32 i = 0; i < m->bytes; i++)
		to[i] = catch_up_byte(m->seq - c->first + i);
}

/* What TCP would let leave now, and would have room for. */
static bool catch_up_granted(struct catch_up *c, u32 bytes)
{
	struct sock *sk = c->sk;
	struct tcp_sock *tp = tcp_sk(sk);
	u32 mss = tp->mss_cache, packets = 0, room = READ_ONCE(sk->sk_sndbuf);

	if (sk->sk_state != TCP_ESTABLISHED || inet_csk(sk)->icsk_ca_state != TCP_CA_Open ||
	    !tcp_write_queue_empty(sk) || c->nr_untold == CATCH_UP_MESSAGES_MAX || !__sk_dst_get(sk))
		return false;
	for (u32 i = 0; i < c->nr_untold; i++)
		packets += DIV_ROUND_UP(c->untold[i].bytes, mss);
	packets += DIV_ROUND_UP(bytes, mss);
	/* as much memory as the messages may take of it when TCP is told */
	if (READ_ONCE(sk->sk_wmem_queued) + (c->nr_untold + 1) * 2 * SKB_TRUESIZE(PAGE_SIZE) > room)
		return false;
	return tcp_packets_in_flight(tp) + packets <= tcp_snd_cwnd(tp) &&
	       !after((c->nr_untold ? c->next : tp->write_seq) + bytes, tcp_wnd_end(tp));
}

/* Also from the timer itself, which is not queued then. */
void catch_up_arm(struct catch_up *c, u32 us)
{
	if (!hrtimer_is_queued(&c->timer))
		hrtimer_start(&c->timer, ns_to_ktime(us * NSEC_PER_USEC), HRTIMER_MODE_REL_SOFT);
}

/* How long TCP may be behind: far less than its timers. */
static u32 catch_up_deadline_us(const struct catch_up *c, u32 where)
{
	if (where == CATCH_UP_IN_SOFTIRQ)
		return 200;
	return min(jiffies_to_usecs(inet_csk(c->sk)->icsk_rto) / 8, CATCH_UP_LATEST_US);
}

static int catch_up_send(struct catch_up *c, const struct catch_up_send *s)
{
	struct catch_up_template template;
	struct catch_up_message m = { .bytes = s->bytes };
	struct sock *sk = c->sk;

	if (!s->bytes || s->bytes > PAGE_SIZE || s->where > CATCH_UP_AT_ACK)
		return -EINVAL;
	m.page = alloc_page(GFP_KERNEL);
	if (!m.page)
		return -ENOMEM;
	lock_sock(sk);
	if (!catch_up_granted(c, s->bytes)) {
		c->counts.refused++;
		release_sock(sk);
		__free_page(m.page);
		return -EAGAIN;
	}
	catch_up_template(sk, &template);
	m.seq = c->nr_untold ? c->next : tcp_sk(sk)->write_seq;	/* after ordinary sends, too */
	catch_up_fill(c, &m);
	m.sent_ns = ktime_get_ns();
	c->untold[c->nr_untold++] = m;
	WRITE_ONCE(c->next, m.seq + m.bytes);	/* before the first byte leaves */
	c->counts.messages++;
	get_page(m.page);
	release_sock(sk);

	catch_up_emit(&template, &m);
	put_page(m.page);
	dst_release(template.dst);
	if (s->where == CATCH_UP_IN_PROCESS) {
		lock_sock(sk);
		catch_up_tell(c, &c->counts.told_in_process);
		release_sock(sk);
	} else {
		catch_up_arm(c, catch_up_deadline_us(c, s->where));
	}
	return 0;
}

static int catch_up_hold(struct catch_up *c, u32 us)
{
	if (us > 100000)
		return -EINVAL;
	lock_sock(c->sk);
	usleep_range(us, us + 100);
	release_sock(c->sk);
	return 0;
}

/* Once TCP has heard of all. */
static long catch_up_count(struct catch_up *c, void __user *user)
{
	struct catch_up_counts counts;

	lock_sock(c->sk);
	catch_up_tell(c, &c->counts.told_in_process);
	counts = c->counts;
	release_sock(c->sk);
	return copy_to_user(user, &counts, sizeof(counts)) ? -EFAULT : 0;
}

/* ---- the connection ---- */

static int catch_up_attach(struct file *file, const struct catch_up_attach *a)
{
	struct socket *sock;
	struct catch_up *c;
	struct sock *sk;
	int err = 0;

	sock = sockfd_lookup(a->fd, &err);
	if (!sock)
		return err;
	sk = sock->sk;
	c = kzalloc(sizeof(*c), GFP_KERNEL);
	if (!c || sk->sk_family != AF_INET || sk->sk_protocol != IPPROTO_TCP || file->private_data ||
	    catch_up_now || sk->sk_state != TCP_ESTABLISHED) {
		kfree(c);
		sockfd_put(sock);
		return -EINVAL;
	}
	c->sk = sk;
	c->repair = a->repair;
	hrtimer_setup(&c->timer, catch_up_timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_SOFT);
	sock_hold(sk);
	lock_sock(sk);
	c->old_prot = sk->sk_prot;
	c->prot = *sk->sk_prot;
	c->prot.release_cb = catch_up_release_cb;
	c->prot.sendmsg = catch_up_sendmsg;
	c->old_af_ops = inet_csk(sk)->icsk_af_ops;
	c->af_ops = *c->old_af_ops;
	c->af_ops.queue_xmit = catch_up_xmit;
	c->old_backlog_rcv = sk->sk_backlog_rcv;
	c->first = c->next = tcp_sk(sk)->write_seq;
	WRITE_ONCE(catch_up_now, c);
	WRITE_ONCE(sk->sk_prot, &c->prot);
	inet_csk(sk)->icsk_af_ops = &c->af_ops;
	sk->sk_backlog_rcv = catch_up_backlog_rcv;
	release_sock(sk);
	file->private_data = c;
	sockfd_put(sock);
	return 0;
}

static void catch_up_detach(struct catch_up *c)
{
	struct sock *sk = c->sk;

	lock_sock(sk);
	catch_up_tell(c, &c->counts.told_in_process);
	WRITE_ONCE(sk->sk_prot, c->old_prot);
	inet_csk(sk)->icsk_af_ops = c->old_af_ops;
	sk->sk_backlog_rcv = c->old_backlog_rcv;
	WRITE_ONCE(catch_up_now, NULL);
	release_sock(sk);
	synchronize_net();
	hrtimer_cancel(&c->timer);	/* nobody is left who starts it, but itself */
	while (c->nr_untold)
		put_page(c->untold[--c->nr_untold].page);
	sock_put(sk);
	kfree(c);
}

/* ---- the device ---- */

static long catch_up_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct catch_up *c = file->private_data;
	void __user *user = (void __user *)arg;
	union {
		struct catch_up_attach attach;
		struct catch_up_send send;
		u32 us;
	} a;

	if (cmd == CATCH_UP_COUNTS)
		return c ? catch_up_count(c, user) : -ENOTCONN;
	if (_IOC_SIZE(cmd) > sizeof(a) || copy_from_user(&a, user, _IOC_SIZE(cmd)))
		return -EFAULT;
	if (cmd == CATCH_UP_ATTACH)
		return catch_up_attach(file, &a.attach);
	if (!c)
		return -ENOTCONN;
	if (cmd == CATCH_UP_HOLD)
		return catch_up_hold(c, a.us);
	return cmd == CATCH_UP_SEND ? catch_up_send(c, &a.send) : -ENOTTY;
}

static long catch_up_ioctl_locked(struct file *file, unsigned int cmd, unsigned long arg)
{
	long ret;

	if (cmd == CATCH_UP_HOLD)	/* beside the others, that is what it is for */
		return catch_up_ioctl(file, cmd, arg);
	mutex_lock(&catch_up_mutex);
	ret = catch_up_ioctl(file, cmd, arg);
	mutex_unlock(&catch_up_mutex);
	return ret;
}

static int catch_up_open(struct inode *inode, struct file *file)
{
	file->private_data = NULL;	/* the misc device */
	return 0;
}

static int catch_up_close(struct inode *inode, struct file *file)
{
	mutex_lock(&catch_up_mutex);
	if (file->private_data)
		catch_up_detach(file->private_data);
	mutex_unlock(&catch_up_mutex);
	return 0;
}

static const struct file_operations catch_up_file = {
	.owner = THIS_MODULE,
	.open = catch_up_open,
	.release = catch_up_close,
	.unlocked_ioctl = catch_up_ioctl_locked,
};

static struct miscdevice catch_up_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "catch_up",
	.fops = &catch_up_file,
};

static int __init catch_up_init(void)
{
	int err = nf_register_net_hook(&init_net, &catch_up_hook);

	if (err)
		return err;
	err = misc_register(&catch_up_misc);
	if (err)
		nf_unregister_net_hook(&init_net, &catch_up_hook);
	return err;
}

static void __exit catch_up_exit(void)
{
	misc_deregister(&catch_up_misc);
	nf_unregister_net_hook(&init_net, &catch_up_hook);
}

module_init(catch_up_init);
module_exit(catch_up_exit);

MODULE_DESCRIPTION("Test: bytes that leave without TCP, and TCP that is told of them");
MODULE_LICENSE("GPL");
