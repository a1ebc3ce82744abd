// SPDX-License-Identifier: BSD-3-Clause
// The links that root makes and removes: never those that anybody else works on.
#pragma once

namespace nupa::fuzz {

// Gone, with their RDMA devices.
void remove_links();

}  // namespace nupa::fuzz
