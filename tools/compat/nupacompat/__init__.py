# SPDX-License-Identifier: BSD-3-Clause
"""Programs no one here wrote, on tcp_qp: what is run, how, and what it said."""
