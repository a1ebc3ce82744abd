# SPDX-License-Identifier: BSD-3-Clause
"""Tests in guests, a file a subject: docs/testing.md has the list, CONTRIBUTING.md how to add one."""
