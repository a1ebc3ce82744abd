# SPDX-License-Identifier: BSD-3-Clause
"""The demonstration: two machines, one file, three engines."""
