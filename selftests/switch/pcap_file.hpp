// SPDX-License-Identifier: BSD-3-Clause
// Reads a capture file by libpcap.
#pragma once

#include <pcap/pcap.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "fake_port.hpp"

namespace nupa::testing {

inline std::vector<Bytes> read_pcap(const std::string& path) {
    char error[PCAP_ERRBUF_SIZE] = "";
    pcap_t* file = pcap_open_offline(path.c_str(), error);
    if (!file)
        throw std::runtime_error(error);
    std::vector<Bytes> frames;
    pcap_pkthdr* head = nullptr;
    const u_char* data = nullptr;
    while (pcap_next_ex(file, &head, &data) == 1)
        frames.emplace_back(data, data + head->caplen);
    pcap_close(file);
    return frames;
}

}  // namespace nupa::testing
