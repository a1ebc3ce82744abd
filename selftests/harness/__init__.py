# SPDX-License-Identifier: BSD-3-Clause
"""What tests are written with, and what runs them: pytest's plugin for guests (`guest_tests`), KTAP (`ktap`, `report`), CTest's programs (`ctest`)."""
