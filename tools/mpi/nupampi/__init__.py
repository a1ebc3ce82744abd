# SPDX-License-Identifier: BSD-3-Clause
"""MPI and its neighbours on tcp_qp, beside TCP: stacks, launching, programs, bars."""
