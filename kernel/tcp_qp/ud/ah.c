// SPDX-License-Identifier: GPL-2.0
/* Address handles: a path, made once to what sendmsg() wants to be told of it. */
#include <net/ipv6.h>
#include <rdma/uverbs_ioctl.h>
#include "ud/ud.h"

static void tqp_route_add(struct tqp_ud_route *route, int level, int type, const void *data,
			  u32 bytes)
{
	struct cmsghdr *cmsg = (void *)(route->control + route->control_bytes);

	cmsg->cmsg_len = CMSG_LEN(bytes);
	cmsg->cmsg_level = level;
	cmsg->cmsg_type = type;
	memcpy(CMSG_DATA(cmsg), data, bytes);
	route->control_bytes += CMSG_SPACE(bytes);
}

static void tqp_route_v4(struct tqp_ud_route *route, const struct ib_global_route *grh,
			 const union ib_gid *sgid)
{
	struct in_pktinfo from = {};
	int tos = grh->traffic_class, ttl = grh->hop_limit;

	route->to.v4.sin_family = AF_INET;
	route->to.v4.sin_port = htons(tqp_ud_port());
	memcpy(&route->to.v4.sin_addr, grh->dgid.raw + 12, sizeof(route->to.v4.sin_addr));
	route->to_bytes = sizeof(route->to.v4);
	memcpy(&from.ipi_spec_dst, sgid->raw + 12, sizeof(from.ipi_spec_dst));
	tqp_route_add(route, SOL_IP, IP_PKTINFO, &from, sizeof(from));
	tqp_route_add(route, SOL_IP, IP_TOS, &tos, sizeof(tos));
	if (ttl)
		tqp_route_add(route, SOL_IP, IP_TTL, &ttl, sizeof(ttl));
}

static void tqp_route_v6(struct tqp_ud_route *route, const struct ib_global_route *grh,
			 const union ib_gid *sgid, int ifindex)
{
	const struct in6_addr *to = (const void *)grh->dgid.raw;
	int class = grh->traffic_class, hops = grh->hop_limit;
	struct in6_pktinfo from = {};

	/* other addresses have one meaning on all links: routing chooses */
	if (!(ipv6_addr_type(to) & IPV6_ADDR_LINKLOCAL))
		ifindex = 0;
	route->to.v6.sin6_family = AF_INET6;
	route->to.v6.sin6_port = htons(tqp_ud_port());
	route->to.v6.sin6_addr = *to;
	route->to.v6.sin6_scope_id = ifindex;
	route->to_bytes = sizeof(route->to.v6);
	memcpy(&from.ipi6_addr, sgid->raw, sizeof(from.ipi6_addr));
	from.ipi6_ifindex = ifindex;
	tqp_route_add(route, SOL_IPV6, IPV6_PKTINFO, &from, sizeof(from));
	tqp_route_add(route, SOL_IPV6, IPV6_TCLASS, &class, sizeof(class));
	if (hops)
		tqp_route_add(route, SOL_IPV6, IPV6_HOPLIMIT, &hops, sizeof(hops));
}

static int tqp_ah_check(const struct rdma_ah_attr *attr)
{
	const struct ib_global_route *grh = rdma_ah_read_grh(attr);
	const struct in6_addr *to = (const void *)grh->dgid.raw, *from;

	if (!(rdma_ah_get_ah_flags(attr) & IB_AH_GRH) || !grh->sgid_attr)
		return -EINVAL;		/* an address is all that there is of a path */
	from = (const void *)grh->sgid_attr->gid.raw;
	if (rdma_is_multicast_addr((struct in6_addr *)to))
		return -EOPNOTSUPP;
	if (ipv6_addr_any(to) || ipv6_addr_v4mapped(to) != ipv6_addr_v4mapped(from))
		return -EINVAL;
	return 0;
}

int tqp_create_user_ah(struct ib_ah *ibah, struct rdma_ah_init_attr *init, struct ib_udata *udata)
{
	const struct ib_global_route *grh = rdma_ah_read_grh(init->ah_attr);
	struct tqp_device *dev = to_tqp_device(ibah->device);
	struct rxe_create_ah_resp resp = {};
	struct tqp_ah *ah = to_tqp_ah(ibah);
	int ret;

	if (udata->outlen < sizeof(resp))
		return -EINVAL;
	ret = tqp_ah_check(init->ah_attr);
	if (ret)
		return ret;
	if (ipv6_addr_v4mapped((const void *)grh->dgid.raw))
		tqp_route_v4(&ah->route, grh, &grh->sgid_attr->gid);
	else
		tqp_route_v6(&ah->route, grh, &grh->sgid_attr->gid, dev->netdev->ifindex);
	ret = xa_alloc(&dev->ahs, &ah->number, ah, XA_LIMIT(1, TQP_UD_AH_MAX), GFP_KERNEL_ACCOUNT);
	if (ret)
		return ret;
	resp.ah_num = ah->number;
	ret = ib_copy_to_udata(udata, &resp, sizeof(resp));
	if (ret)
		xa_erase(&dev->ahs, ah->number);
	return ret;
}

int tqp_destroy_ah(struct ib_ah *ibah, u32 flags)
{
	xa_erase(&to_tqp_device(ibah->device)->ahs, to_tqp_ah(ibah)->number);
	return 0;
}

bool tqp_ah_route(struct tqp_pd *pd, u32 number, struct tqp_ud_route *route)
{
	struct tqp_device *dev = to_tqp_device(pd->ib.device);
	const struct tqp_ah *ah;
	bool found;

	/* an AH leaves the table before it is freed */
	xa_lock(&dev->ahs);
	ah = xa_load(&dev->ahs, number);
	found = ah && ah->ib.pd == &pd->ib;
	if (found)
		*route = ah->route;
	xa_unlock(&dev->ahs);
	return found;
}
