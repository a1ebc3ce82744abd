// SPDX-License-Identifier: BSD-3-Clause
// A capture file of one port: every wire segment that enters or leaves it.
#pragma once

#include <pcap/pcap.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace nupa::daemon {

class PcapWriter {
public:
    static constexpr int kSnapBytes = 65535;

    // Throws std::runtime_error with libpcap's reason.
    explicit PcapWriter(std::string path);

    void write(uint64_t unix_time_ns, std::span<const uint8_t> frame) noexcept;
    // Makes what was written visible in the file; called when the switch goes idle.
    void flush() noexcept;
    [[nodiscard]] const std::string& path() const noexcept { return path_; }

private:
    struct Close {
        void operator()(pcap_t* p) const noexcept { pcap_close(p); }
        void operator()(pcap_dumper_t* d) const noexcept { pcap_dump_close(d); }
    };
    std::string path_;
    std::unique_ptr<pcap_t, Close> format_;
    std::unique_ptr<pcap_dumper_t, Close> file_;
    bool dirty_ = false;
};

}  // namespace nupa::daemon
