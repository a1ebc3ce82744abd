// SPDX-License-Identifier: GPL-2.0
/* What the hardware reads and writes in host memory. */
#include <rdma/rdma_user_rxe.h>
#include "softnic.h"

enum {
	SNIC_WQE_HEAD_BYTES = offsetof(struct rxe_recv_wqe, dma) + offsetof(struct rxe_dma_info, sge),
	SNIC_WQE_NUM_SGE_AT = offsetof(struct rxe_recv_wqe, dma) +
			      offsetof(struct rxe_dma_info, num_sge),
};

static_assert(sizeof(struct rxe_sge) == sizeof(((struct snic_wqe *)NULL)->sge[0]));

bool snic_consumed(const struct snic_qp *qp, u32 seq)
{
	/* the host stores it after its copies */
	return !after(seq, le32_to_cpu(smp_load_acquire(&qp->shadow->consumed)));
}

bool snic_read_waits(const struct snic_qp *qp, u16 msn, u64 va, u32 key, u32 length)
{
	/* the host stores it after the table's zeroes */
	u64 at = le64_to_cpu(smp_load_acquire(&qp->shadow->reads_addr));
	u32 valid = TQP_OFFLOAD_READ_VALID | msn;
	const struct tqp_offload_reads *reads;
	const struct tqp_offload_read *read;
	bool same;

	if (!at)
		return false;
	reads = snic_memory(at);
	read = &reads->read[msn % TQP_OFFLOAD_READS_MAX];
	/* written after the entry, and cleared before it is used again: look on both sides */
	if (le32_to_cpu(smp_load_acquire(&read->valid)) != valid)
		return false;
	same = le64_to_cpu(READ_ONCE(read->va)) == va && le32_to_cpu(READ_ONCE(read->key)) == key &&
	       le32_to_cpu(READ_ONCE(read->length)) == length;
	smp_rmb();	/* the entry before its second look */
	return same && le32_to_cpu(READ_ONCE(read->valid)) == valid;
}

static const void *snic_ring_at(const struct snic_qp *qp, size_t at)
{
	return snic_memory(qp->rq_pages[at / PAGE_SIZE]) + at % PAGE_SIZE;
}

/* An element may cross a page. */
static void snic_ring_copy(const struct snic_qp *qp, size_t at, void *to, size_t bytes)
{
	while (bytes) {
		size_t n = min(bytes, PAGE_SIZE - at % PAGE_SIZE);

		memcpy(to, snic_ring_at(qp, at), n);
		to += n;
		at += n;
		bytes -= n;
	}
	barrier();	/* the application may write it meanwhile: never read again */
}

bool snic_rq_posted(const struct snic_qp *qp, u16 msn)
{
	u32 completed, producer;

	if (!qp->nr_rq_pages)
		return false;
	completed = le32_to_cpu(smp_load_acquire(&qp->shadow->completed));	/* before the producer */
	/* user space stores it after the entries */
	producer = smp_load_acquire((const u32 *)
				    snic_ring_at(qp, offsetof(struct rxe_queue_buf, producer_index)));
	return (u16)(msn - completed) < ((producer - qp->rq_base - completed) & qp->rq_mask);
}

bool snic_rq_read(const struct snic_qp *qp, u16 msn, struct snic_wqe *wqe)
{
	size_t at = offsetof(struct rxe_queue_buf, data) +
		    ((size_t)((qp->rq_base + msn) & qp->rq_mask) << qp->rq_log2_bytes);

	snic_ring_copy(qp, at + SNIC_WQE_NUM_SGE_AT, &wqe->num_sge, sizeof(wqe->num_sge));
	if (wqe->num_sge > qp->rq_sge_max)
		return false;
	snic_ring_copy(qp, at + SNIC_WQE_HEAD_BYTES, wqe->sge, wqe->num_sge * sizeof(wqe->sge[0]));
	return true;
}

/*
 * memcpy() may go down.  A word at a time, to rising addresses: who polls the last
 * byte of a message finds those before it.
 */
static void snic_copy_rising(u8 *to, const u8 *from, size_t bytes)
{
	for (; bytes && !IS_ALIGNED((unsigned long)to, sizeof(u64)); bytes--)
		WRITE_ONCE(*to++, *from++);
	for (; bytes >= sizeof(u64); bytes -= sizeof(u64)) {
		WRITE_ONCE(*(u64 *)to, get_unaligned((const u64 *)from));
		to += sizeof(u64);
		from += sizeof(u64);
	}
	for (; bytes; bytes--)
		WRITE_ONCE(*to++, *from++);
}

/* pages[0] holds iova rounded down to a page. */
static void snic_fill_piece(struct snic_piece piece, const u8 *payload)
{
	u64 page_bytes = 1ULL << piece.mr->page_shift;
	u64 offset = piece.addr - round_down(piece.mr->iova, page_bytes);

	while (piece.bytes) {
		u64 in_page = offset & (page_bytes - 1);
		u64 n = min(piece.bytes, page_bytes - in_page);

		snic_copy_rising(snic_memory(piece.mr->pages[offset >> piece.mr->page_shift]) + in_page,
				 payload, n);
		payload += n;
		offset += n;
		piece.bytes -= n;
	}
}

void snic_fill(const struct snic_target *target, const u8 *payload)
{
	u32 i;

	for (i = 0; i < target->count; i++) {
		snic_fill_piece(target->piece[i], payload);
		payload += target->piece[i].bytes;
	}
}
