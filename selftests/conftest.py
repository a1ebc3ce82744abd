# SPDX-License-Identifier: BSD-3-Clause
"""Loads our plugin; pytest puts this directory on the module path."""

pytest_plugins = ("harness.guest_tests",)
