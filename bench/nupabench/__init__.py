# SPDX-License-Identifier: BSD-3-Clause
"""What TCP-QP costs and what it saves, side by side in one run."""
