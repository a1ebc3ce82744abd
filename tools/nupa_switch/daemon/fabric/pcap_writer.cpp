// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/pcap_writer.hpp"

#include <algorithm>
#include <stdexcept>

namespace nupa::daemon {

PcapWriter::PcapWriter(std::string path) : path_(std::move(path)) {
    format_.reset(
        pcap_open_dead_with_tstamp_precision(DLT_EN10MB, kSnapBytes, PCAP_TSTAMP_PRECISION_NANO));
    if (!format_)
        throw std::runtime_error("pcap: out of memory");
    file_.reset(pcap_dump_open(format_.get(), path_.c_str()));
    if (!file_)
        throw std::runtime_error(std::string("pcap: ") + pcap_geterr(format_.get()));
    flush();
}

void PcapWriter::write(uint64_t unix_time_ns, std::span<const uint8_t> frame) noexcept {
    constexpr uint64_t kNsPerSecond = 1'000'000'000;
    pcap_pkthdr head{};
    head.ts.tv_sec = static_cast<time_t>(unix_time_ns / kNsPerSecond);
    head.ts.tv_usec =
        static_cast<suseconds_t>(unix_time_ns % kNsPerSecond);  // nanoseconds, by the file's magic
    head.len = static_cast<bpf_u_int32>(frame.size());
    head.caplen = std::min<bpf_u_int32>(head.len, kSnapBytes);
    pcap_dump(reinterpret_cast<u_char*>(file_.get()), &head, frame.data());
    dirty_ = true;
}

void PcapWriter::flush() noexcept {
    if (file_)
        pcap_dump_flush(file_.get());
    dirty_ = false;
}

}  // namespace nupa::daemon
